"""Put back together what column and page breaks tore apart: paragraphs, list items, tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ocr2_core.blocks import BlockLabel
from structure_recovery.elements import Piece, is_cjk, join_texts
from structure_recovery.table_joining import Continuation, find_continuation, joined_grid
from structure_recovery.tables import Grid, parse_table

# Blocks that may stand between the halves of a paragraph without ending it.
_FLOATS = (BlockLabel.PICTURE, BlockLabel.TABLE, BlockLabel.CAPTION, BlockLabel.FOOTNOTE)
_TERMINAL = ".!?:;。！？：；…"
_CLOSING = "\"'”’»)）」』】]"
_LIST_START = re.compile(r"^([•·∙●▪■◦‣*\-–—]|\(?[0-9a-zA-Z]{1,3}[.)])\s")
_MARKER = re.compile(
    r"^(?P<marker>[•·∙●▪■◦‣*\-–—]|\(?(?:[0-9]{1,3}|[a-zA-Z]|[ivx]{1,5})[.)]|[0-9]{1,3}[．、])\s*(?=\S)"
)
_CONTINUED = re.compile(r"cont(inued|\.|')|fortsetzung|forts\.|suite|continuación|continua|续|續|続", re.IGNORECASE)


@dataclass(eq=False, slots=True)
class Element:
    """One element of the document: the pieces it is made of, each with its span of characters in `text`. `depth`: of a
    list item in other lists. `note`: the name of the note or warning it belongs to."""

    label: BlockLabel
    pieces: list[Piece]
    text: str
    spans: list[tuple[int, int]]
    level: int | None = None
    grid: Grid | None = None
    captions: list[Element] = field(default_factory=list)
    depth: int = 0
    note: str = ""

    @property
    def page_index(self) -> int:
        return self.pieces[0].page_index


@dataclass(frozen=True)
class Joined:
    """The elements in reading order, and what was done; header rows left out of joined tables are kept here."""

    elements: list[Element]
    paragraph_joins: int
    table_joins: int
    repeated_headers: list[Element]


def element_of(piece: Piece, label: BlockLabel | None = None) -> Element:
    grid = parse_table(piece.text) if piece.label is BlockLabel.TABLE else None
    return Element(label or piece.label, [piece], piece.text, [(0, len(piece.text))], grid=grid)


def element_of_many(pieces: Sequence[Piece], label: BlockLabel) -> Element:
    """One element of pieces printed as one (a heading's number and its words)."""
    first = element_of(pieces[0], label)
    for piece in pieces[1:]:
        _extend(first, element_of(piece, label), ())
    return first


def join_elements(elements: Sequence[Element]) -> Joined:
    """Join across breaks. `elements` is the body in reading order; headings (with a level) end every paragraph."""
    words = hyphenated_words(elements)
    joined: list[Element] = []
    repeated: list[Element] = []
    paragraph_joins = table_joins = 0
    open_text: Element | None = None
    last_table: Element | None = None
    for element in elements:
        if element.label in (BlockLabel.TEXT, BlockLabel.LIST_ITEM) and element.level is None:
            if open_text is not None and _runs_on(open_text, element):
                _extend(open_text, element, words)
                paragraph_joins += 1
            else:
                joined.append(element)
                open_text = element
            last_table = None
            continue
        if element.label is BlockLabel.TABLE and element.grid is not None:
            how = None if last_table is None else _continuation(last_table, element)
            if last_table is not None and how is not None:
                if how.header_rows:
                    repeated.append(_header_element(element, how.header_rows))
                _extend_table(last_table, element, how)
                table_joins += 1
                continue
            last_table = element
        elif element.label not in _FLOATS or (
            element.label is BlockLabel.CAPTION and not _CONTINUED.search(element.text)
        ):
            last_table = None
        if element.label not in _FLOATS:
            open_text = None
        joined.append(element)
    return Joined(joined, paragraph_joins, table_joins, repeated)


def hyphenated_words(elements: Sequence[Element]) -> frozenset[str]:
    """Compounds printed with a hyphen inside a line, case-folded: at a line's end their hyphen must stay."""
    found: set[str] = set()
    for element in elements:
        found.update(word.casefold() for word in re.findall(r"[^\W\d_]+-[^\W\d_]+(?:-[^\W\d_]+)*", element.text))
    return frozenset(found)


def split_marker(text: str) -> tuple[str, str]:
    """A list item's printed marker and the rest; the marker is empty where there is none."""
    match = _MARKER.match(text)
    return (match["marker"], text[match.end() :]) if match else ("", text)


def _runs_on(first: Element, second: Element) -> bool:
    """Whether `second` goes on with the sentence that a column's or page's end broke off in `first`."""
    last, following = first.pieces[-1], second.pieces[0]
    if second.label is BlockLabel.LIST_ITEM or _LIST_START.match(second.text):
        return False
    same_column = (last.page_index, last.column) == (following.page_index, following.column)
    if same_column or following.page_index - last.page_index > 1 or not first.text or not second.text:
        return False
    if not 0.85 < following.size_pt / last.size_pt < 1.18 or last.is_monospace != following.is_monospace:
        return False
    end = first.text.rstrip(_CLOSING)[-1:] or first.text[-1]
    start = second.text.lstrip(_CLOSING + "\"'“‘«(（「『【[")[:1] or second.text[0]
    if end in _TERMINAL:
        return False
    if end in "-\u2010\u00ad" or start.islower():
        return True
    if is_cjk(end) or is_cjk(start):
        return _fills_its_last_line(last) and not _is_indented(following)
    if end == ",":
        return True
    return len(last.lines) > 1 and _fills_its_last_line(last) and not _is_indented(following) and start.isalnum()


def _fills_its_last_line(piece: Piece) -> bool:
    """Whether the last line reaches the block's right edge; without lines, we take it that it does."""
    if len(piece.lines) < 2:
        return not piece.lines or piece.bbox_norm[2] - piece.bbox_norm[0] > 250
    return piece.lines[-1].bbox_norm[2] > piece.bbox_norm[2] - 0.06 * (piece.bbox_norm[2] - piece.bbox_norm[0])


def _is_indented(piece: Piece) -> bool:
    """Whether the first line begins right of the others, as a new paragraph does."""
    if len(piece.lines) < 2:
        return False
    return piece.lines[0].bbox_norm[0] > min(line.bbox_norm[0] for line in piece.lines[1:]) + 8


def _extend(first: Element, second: Element, words: Collection[str]) -> None:
    text = join_texts(first.text, second.text, hyphenated_words=frozenset(words))
    start = len(text) - len(second.text)
    first.spans[-1] = (first.spans[-1][0], min(first.spans[-1][1], start))
    first.spans += [(start + begin, start + end) for begin, end in second.spans]
    first.pieces += second.pieces
    first.text = text


def _continuation(first: Element, second: Element) -> Continuation | None:
    assert second.grid is not None
    if first.grid is None:
        return None
    return find_continuation(first.grid, first.pieces[-1], second.grid, second.pieces[0])


def _extend_table(first: Element, second: Element, how: Continuation) -> None:
    assert first.grid is not None
    assert second.grid is not None
    first.grid = joined_grid(first.grid, second.grid, how)
    first.pieces += second.pieces
    first.spans += second.spans


def _header_element(table: Element, rows: int) -> Element:
    assert table.grid is not None
    text = " | ".join(cell.text for cell in table.grid.cells if cell.row < rows)
    return Element(BlockLabel.PAGE_HEADER, table.pieces[:1], text, [(0, len(text))])
