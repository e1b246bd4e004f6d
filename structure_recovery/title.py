"""The document's own title: the most prominent words before its first section."""

from __future__ import annotations

from collections.abc import Sequence

from ocr2_core.blocks import BlockLabel
from structure_recovery.contents import Contents
from structure_recovery.elements import Piece
from structure_recovery.numbering import FIXED_DEPTH, NumberKind, parse_numbering
from structure_recovery.vocabulary import CONTENTS_TITLES, LIST_TITLES, letters_of

MAX_CHARACTERS = 200
# A title page carries little text and no long paragraph.
MAX_PAGE_CHARACTERS = 1500
LONG_PARAGRAPH = 150


def find_title(body: Sequence[Piece], body_pt: float, contents: Contents) -> list[Piece]:
    """The pieces of the title in reading order; empty where the document has none.

    It is the largest text of the first page that has any, before the contents, clearly larger than running text (or
    labelled title), without a number, not listed in the contents, and no numbered heading stands above it. The page is
    a title page; or the text is labelled title; or nothing in the rest of the document is set as large. Lines of the
    same size right below belong to it.
    """
    first_page = next((p.page_index for p in body if p.label is not BlockLabel.PICTURE and letters_of(p.text)), None)
    if first_page is None or (contents.page_indexes and contents.page_indexes[0] < first_page):
        return []
    page = [piece for piece in body if piece.page_index == first_page]
    listed = {letters_of(entry.numbering.title if entry.numbering else entry.title) for entry in contents.entries}
    allowed = [piece for piece in page if _may_be_title(piece, listed)]
    prominent = [piece for piece in allowed if piece.label is BlockLabel.TITLE or piece.size_pt >= 1.35 * body_pt]
    if not prominent:
        return []
    largest = max(prominent, key=lambda piece: (piece.size_pt, -piece.order))
    start = page.index(largest)
    if any(_is_numbered_heading(piece, body_pt) for piece in page[:start]):
        return []
    elsewhere = max((piece.size_pt for piece in body if piece.page_index > first_page and _is_line(piece)), default=0.0)
    if not (_is_title_page(page) or largest.label is BlockLabel.TITLE or largest.size_pt > 1.15 * elsewhere):
        return []
    title = [largest]
    for piece in page[start + 1 : start + 4]:
        if piece not in prominent or not 0.9 < piece.size_pt / largest.size_pt < 1.1:
            break
        title.append(piece)
    return title


def _may_be_title(piece: Piece, listed: set[str]) -> bool:
    letters = letters_of(piece.text)
    numbering = parse_numbering(piece.text)
    return (
        _is_line(piece)
        and len(letters) >= 2
        and letters not in listed | CONTENTS_TITLES | LIST_TITLES
        and (numbering is None or numbering.kind in (NumberKind.LETTER, NumberKind.ROMAN))
    )


def _is_line(piece: Piece) -> bool:
    return (
        piece.label in (BlockLabel.TITLE, BlockLabel.SECTION_HEADER, BlockLabel.TEXT)
        and len(piece.text) <= MAX_CHARACTERS
    )


def _is_numbered_heading(piece: Piece, body_pt: float) -> bool:
    numbering = parse_numbering(piece.text)
    return numbering is not None and numbering.kind in FIXED_DEPTH and piece.size_pt > 1.1 * body_pt


def _is_title_page(page: Sequence[Piece]) -> bool:
    lengths = [len(piece.text) for piece in page]
    return sum(lengths) <= MAX_PAGE_CHARACTERS and max(lengths, default=0) < LONG_PARAGRAPH
