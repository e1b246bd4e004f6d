"""The document's own title: the most prominent words before its first section."""

from __future__ import annotations

from collections.abc import Sequence

from ocr2_core.blocks import BlockLabel
from structure_recovery.contents import Contents
from structure_recovery.elements import Piece
from structure_recovery.numbering import NumberKind, parse_numbering
from structure_recovery.vocabulary import CONTENTS_TITLES, LIST_TITLES, letters_of

MAX_CHARACTERS = 200
# A title page carries little text: more than this many characters, and it is a page of a chapter.
MAX_PAGE_CHARACTERS = 1500


def find_title(body: Sequence[Piece], body_pt: float, contents: Contents) -> list[Piece]:
    """The pieces of the title in reading order; empty where the document has none.

    It stands on the first page with text, before any contents, is set clearly larger than the text (or labelled title)
    and larger than all else on its page, has no number, and the contents do not list it. Lines of the same size right
    below belong to it.
    """
    first_page = next(
        (piece.page_index for piece in body if piece.label is not BlockLabel.PICTURE and letters_of(piece.text)), None
    )
    if first_page is None:
        return []
    if contents.page_indexes and contents.page_indexes[0] < first_page:
        return []
    page = [piece for piece in body if piece.page_index == first_page]
    if sum(len(piece.text) for piece in page) > MAX_PAGE_CHARACTERS:
        return []
    listed = {letters_of(entry.numbering.title if entry.numbering else entry.title) for entry in contents.entries}
    allowed = [piece for piece in page if _may_be_title(piece, listed)]
    prominent = [piece for piece in allowed if piece.label is BlockLabel.TITLE or piece.size_pt >= 1.35 * body_pt]
    if not prominent:
        return []
    largest = max(prominent, key=lambda piece: (piece.size_pt, -piece.order))
    if any(piece.size_pt > 1.1 * largest.size_pt and piece not in allowed for piece in page if piece.text):
        return []
    start = page.index(largest)
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
        piece.label in (BlockLabel.TITLE, BlockLabel.SECTION_HEADER, BlockLabel.TEXT)
        and len(letters) >= 2
        and len(piece.text) <= MAX_CHARACTERS
        and letters not in listed | CONTENTS_TITLES | LIST_TITLES
        and (numbering is None or numbering.kind in (NumberKind.LETTER, NumberKind.ROMAN))
    )
