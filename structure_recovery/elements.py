"""The stage's own view of a block: one piece of one page, with its type size in points."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ocr2_core.blocks import Block, BlockLabel, PageBlocks, TextLine
from ocr2_core.geometry import NORM_MAX, BBoxNorm, union
from structure_recovery.vocabulary import letters_of

# Blocks whose text runs on as prose; only these are ever split, joined or made headings.
PROSE_LABELS = frozenset(
    {
        BlockLabel.TITLE,
        BlockLabel.SECTION_HEADER,
        BlockLabel.TEXT,
        BlockLabel.LIST_ITEM,
        BlockLabel.PAGE_HEADER,
        BlockLabel.PAGE_FOOTER,
        BlockLabel.TOC_ENTRY,
    }
)

_CJK = re.compile(r"[\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\uac00-\ud7af]")


@dataclass(eq=False, slots=True)
class Piece:
    """One block of one page. `size_pt` is the type size: measured by the engine, or estimated (±20 %) from its box."""

    page_index: int
    label: BlockLabel
    bbox_norm: BBoxNorm
    text: str
    lines: tuple[TextLine, ...]
    width_pt: float
    height_pt: float
    size_pt: float
    is_size_measured: bool = True
    is_bold: bool | None = None
    is_monospace: bool | None = None
    column: int = 0
    order: int = 0

    def is_set_like_text(self, body_pt: float) -> bool:
        """Whether the type is no larger than the body's, as far as can be told."""
        return self.size_pt <= (1.2 if self.is_size_measured else 1.45) * body_pt

    @property
    def y_centre(self) -> float:
        return (self.bbox_norm[1] + self.bbox_norm[3]) / 2

    @property
    def line_height_norm(self) -> float:
        """Type size in thousandths of the page height."""
        return self.size_pt / self.height_pt * NORM_MAX


@dataclass(slots=True)
class Row:
    """Everything printed on one baseline of a page, left to right."""

    page_index: int
    lines: list[TextLine]
    pieces: list[Piece] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(line.text for line in self.lines)

    @property
    def bbox_norm(self) -> BBoxNorm:
        return union([line.bbox_norm for line in self.lines])


def has_cjk(text: str) -> bool:
    return _CJK.search(text) is not None


def is_cjk(character: str) -> bool:
    return _CJK.match(character) is not None


def pieces_of(page: PageBlocks) -> list[Piece]:
    """The page's blocks as pieces, in an order that depends on their place and text only, never on the engine's."""
    pieces = [piece for block in page.blocks for piece in _split(block, page)]
    return sorted(pieces, key=place_key)


def place_key(piece: Piece) -> tuple[float, float, float, float, str, str]:
    """Sorts pieces from top to bottom, ties by the rest of the box and the text: the same for any order given."""
    left, top, right, bottom = piece.bbox_norm
    return top, left, bottom, right, piece.label, piece.text


def text_width_em(text: str) -> float:
    """Rough width of a text in units of its type size: CJK characters are square, Latin letters about half."""
    return sum(1.0 if is_cjk(character) else 0.5 for character in text)


def body_size_pt(pieces: Iterable[Piece]) -> float:
    """The type size most of the running text is set in (median weighted by length); 10 when there is none."""
    sizes: list[tuple[float, int]] = []
    for piece in pieces:
        if piece.label in (BlockLabel.TEXT, BlockLabel.LIST_ITEM) and piece.text:
            sizes.append((piece.size_pt, len(piece.text)))
    return weighted_median(sizes) if sizes else 10.0


def weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """The value at which half of the weight is reached; `values` holds (value, weight), at least one."""
    ordered = sorted(values)
    half = sum(weight for _, weight in ordered) / 2
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return ordered[-1][0]


def rows_of(pieces: Iterable[Piece]) -> list[Row]:
    """The printed rows of one page from top to bottom, made of lines (or whole blocks where there are none)."""
    parts: list[tuple[TextLine, Piece]] = []
    for piece in pieces:
        lines = piece.lines or (TextLine(bbox_norm=piece.bbox_norm, text=piece.text),)
        parts.extend((line, piece) for line in lines if line.text.strip())
    parts.sort(key=lambda part: ((part[0].bbox_norm[1] + part[0].bbox_norm[3]) / 2, part[0].bbox_norm[0]))
    rows: list[list[tuple[TextLine, Piece]]] = []
    for part in parts:
        y_centre = (part[0].bbox_norm[1] + part[0].bbox_norm[3]) / 2
        if rows and y_centre < rows[-1][0][0].bbox_norm[3] - 0.25 * _height(rows[-1][0][0]):
            rows[-1].append(part)
        else:
            rows.append([part])
    found = []
    for members in rows:
        members.sort(key=lambda part: part[0].bbox_norm[0])
        owners = list(dict.fromkeys(piece for _, piece in members))
        found.append(Row(owners[0].page_index, [line for line, _ in members], owners))
    return found


def join_lines(texts: Sequence[str]) -> str:
    """Lines of one paragraph as running text: words broken by a hyphen closed, no space between CJK characters."""
    joined = ""
    for text in texts:
        joined = join_texts(joined, text.strip()) if joined else text.strip()
    return joined


def join_texts(first: str, second: str, *, hyphenated_words: frozenset[str] = frozenset()) -> str:
    """Two halves of a paragraph as one text.

    A hyphen at the end of `first` goes when a lower-case letter follows, unless the compound stands with its hyphen
    elsewhere in the document (`hyphenated_words`, case-folded).
    """
    if not first or not second:
        return first or second
    if first[-1] in "-\u2010\u00ad" and len(first) > 1 and first[-2].isalpha():
        if not second[0].isalpha():
            return f"{first} {second}"
        head, tail = re.split(r"\s", first)[-1], re.split(r"\s", second)[0]
        compound = f"{head[:-1]}-{tail}".casefold().strip(".,;:!?()\"'")
        if first[-1] == "\u00ad" or (second[0].islower() and compound not in hyphenated_words):
            return first[:-1] + second
        return first + second
    if is_cjk(first[-1]) and is_cjk(second[0]):
        return first + second
    return f"{first} {second}"


def _split(block: Block, page: PageBlocks) -> list[Piece]:
    """One block as one piece, or as two where its first lines are plainly set as a heading and the rest is not."""
    if block.label not in PROSE_LABELS or block.label is BlockLabel.TOC_ENTRY or len(block.lines) < 2:
        return [_piece(block, page)]
    cut = _heading_lines(block.lines)
    if not cut or letters_of("".join(line.text for line in block.lines)) != letters_of(block.text):
        return [_piece(block, page)]
    parts = []
    for lines in (block.lines[:cut], block.lines[cut:]):
        label = block.label if lines is block.lines else BlockLabel.TEXT
        parts.append(
            _piece(
                Block(
                    label=label,
                    bbox_norm=union([line.bbox_norm for line in lines]),
                    text=join_lines([line.text for line in lines]),
                    confidence=block.confidence,
                    lines=lines,
                ),
                page,
            )
        )
    return parts


def _heading_lines(lines: Sequence[TextLine]) -> int:
    """How many leading lines are set larger (by 15 %) or in bold while all others are not; 0 for none."""
    sizes = [line.font_height_norm for line in lines]
    bold = [line.is_bold for line in lines]
    for cut in range(1, min(3, len(lines) - 1) + 1):
        head, tail = [s for s in sizes[:cut] if s], [s for s in sizes[cut:] if s]
        if head and tail and min(head) > 1.15 * max(tail):
            return cut
        if all(b is True for b in bold[:cut]) and all(b is False for b in bold[cut:]):
            same_size = not head or not tail or min(head) > 0.97 * statistics.median(tail)
            if same_size and lines[cut].bbox_norm[1] - lines[cut - 1].bbox_norm[3] >= -1:
                return cut
    return 0


def _piece(block: Block, page: PageBlocks) -> Piece:
    return Piece(
        page_index=page.page_index,
        label=block.label,
        bbox_norm=block.bbox_norm,
        text=block.text.strip(),
        lines=tuple(block.lines),
        width_pt=page.width_pt,
        height_pt=page.height_pt,
        size_pt=_size_pt(block, page),
        is_size_measured=any(line.font_height_norm for line in block.lines),
        is_bold=_most([line.is_bold for line in block.lines]),
        is_monospace=_most([line.is_monospace for line in block.lines]),
    )


def _size_pt(block: Block, page: PageBlocks) -> float:
    heights = [line.font_height_norm for line in block.lines if line.font_height_norm]
    if heights:
        return round(statistics.median(heights) / NORM_MAX * page.height_pt, 2)
    width = max((block.bbox_norm[2] - block.bbox_norm[0]) / NORM_MAX * page.width_pt, 1.0)
    height = max((block.bbox_norm[3] - block.bbox_norm[1]) / NORM_MAX * page.height_pt, 1.0)
    em = max(text_width_em(block.text), 0.5)
    # A single line fits the box's width at a type size of about the box's height; else lines share the area.
    if em * height <= 1.3 * width:
        return round(height * 0.9, 2)
    return round(min(math.sqrt(width * height / (em * 1.2)), height), 2)


def _most(values: Sequence[bool | None]) -> bool | None:
    known = [value for value in values if value is not None]
    return sum(known) * 2 > len(known) if known else None


def _height(line: TextLine) -> float:
    return line.bbox_norm[3] - line.bbox_norm[1]
