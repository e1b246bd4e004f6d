"""What a person says of single blocks: it outweighs every other evidence, and survives a new reading of the pages.

A correction is tied to a page and a box of it, not to an engine's numbering: after another OCR run it belongs to the
block that now lies there, even where the box has moved a little.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ocr2_core.blocks import BlockLabel, PageBlocks
from ocr2_core.geometry import BBoxNorm
from structure_recovery.candidates import Candidate, Evidence
from structure_recovery.elements import Piece, pieces_of
from structure_recovery.levels import MAX_LEVEL
from structure_recovery.numbering import parse_numbering
from structure_recovery.vocabulary import letters_of

FURNITURE_LABELS = (BlockLabel.PAGE_HEADER, BlockLabel.PAGE_FOOTER)
# A block is the one that was meant from this overlap on (intersection over union), or from the smaller one where it
# also says nearly the same.
_SAME_BOX, _NEAR_BOX, _SAME_TEXT = 0.5, 0.15, 0.8
CORRECTED = "corrected by hand"


class Correction(BaseModel):
    """One block's correction; what is None stays as it was found.

    `page_number` from 1, `bbox_norm` (x0, y0, x1, y1) in 0..999 of the upright page, as search results give it. `level`
    (from 1) makes the block a heading of that level, `label` anything else of it; `text` replaces what was read;
    `order` is its place (from 1) among the page's blocks of the body. `seen_text` is what was read there when the
    correction was made: it helps to find the block again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    page_number: int = Field(ge=1)
    bbox_norm: BBoxNorm
    level: int | None = Field(default=None, ge=1, le=MAX_LEVEL)
    label: BlockLabel | None = None
    text: str | None = Field(default=None, min_length=1)
    order: int | None = Field(default=None, ge=1)
    seen_text: str = ""

    @model_validator(mode="after")
    def _says_something(self) -> Correction:
        if self.level is None and self.label is None and self.text is None and self.order is None:
            raise ValueError("a correction needs a level, a label, a text or an order")
        if self.level is not None and self.label not in (None, BlockLabel.SECTION_HEADER):
            raise ValueError(f"a level makes a heading: it cannot go with the label {self.label}")
        if self.label in (BlockLabel.TITLE, BlockLabel.TOC_ENTRY):
            raise ValueError(f"the label {self.label} cannot be set by hand")
        x0, y0, x1, y1 = self.bbox_norm
        if not (0 <= x0 < x1 <= 999 and 0 <= y0 < y1 <= 999):
            raise ValueError("bbox_norm must be x0 < x1 and y0 < y1, from 0 to 999")
        return self

    @property
    def is_heading(self) -> bool:
        return self.level is not None or self.label is BlockLabel.SECTION_HEADER

    def over(self, earlier: Correction) -> Correction:
        """This one as a later word on the same block: what it leaves open stays as the earlier one said."""
        said = {name: value for name, value in self if value is not None}
        if self.level is not None or self.label is not None:
            # a block is one thing: the later word on it replaces level and label together
            said = {**said, "level": self.level, "label": self.label}
        said["seen_text"] = self.seen_text or earlier.seen_text
        return Correction.model_validate({**dict(earlier), **said})

    def __str__(self) -> str:
        box = ", ".join(f"{value:g}" for value in self.bbox_norm)
        said = [
            f"level {self.level}" if self.level is not None else "",
            f"label {self.label}" if self.label is not None else "",
            f"text {self.text!r}" if self.text is not None else "",
            f"order {self.order}" if self.order is not None else "",
        ]
        return f"page {self.page_number}, box {box}: {', '.join(filter(None, said))}"


@dataclass(frozen=True)
class Corrected:
    """The corrections that found their block, and those that did not."""

    by_piece: Mapping[Piece, Correction] = field(default_factory=dict)
    unmatched: Sequence[Correction] = ()

    @property
    def headings(self) -> list[Piece]:
        """Pieces that a person calls headings."""
        return [piece for piece, correction in self.by_piece.items() if correction.is_heading]

    @property
    def furniture(self) -> set[Piece]:
        """Pieces that a person calls headers or footers."""
        return {piece for piece, correction in self.by_piece.items() if correction.label in FURNITURE_LABELS}

    @property
    def body(self) -> set[Piece]:
        """Pieces that a person gave a level, a place, or a label of the body: neither furniture nor contents."""
        return {
            piece
            for piece, correction in self.by_piece.items()
            if correction.label not in FURNITURE_LABELS
            and (correction.label is not None or correction.level is not None or correction.order is not None)
        }

    @property
    def plain(self) -> set[Piece]:
        """Pieces that a person says are no headings."""
        return {piece for piece in self.body if self.by_piece[piece].label not in (None, BlockLabel.SECTION_HEADER)}

    def level_of(self, pieces: Iterable[Piece]) -> int | None:
        """The level that a person gave one of these pieces."""
        levels = (self.by_piece[piece].level for piece in pieces if piece in self.by_piece)
        return next((level for level in levels if level is not None), None)


def apply_corrections(
    pages: Sequence[PageBlocks], by_page: Sequence[Sequence[Piece]], corrections: Sequence[Correction]
) -> Corrected:
    """Find each correction's block and put its text and label there; of one block a later one goes over an earlier."""
    frames = {page.page_index: page for page in pages}
    by_piece: dict[Piece, Correction] = {}
    unmatched = []
    for correction in corrections:
        frame = frames.get(correction.page_number - 1)
        piece = None if frame is None else _find(frame, by_page[frame.page_index], correction)
        if piece is None:
            unmatched.append(correction)
            continue
        by_piece[piece] = correction.over(by_piece[piece]) if piece in by_piece else correction
    for piece, correction in by_piece.items():
        if correction.text is not None:
            piece.text, piece.lines = correction.text, ()
        if correction.label is not None:
            piece.label = correction.label
    return Corrected(by_piece, unmatched)


def corrected_headings(
    headings: Sequence[Candidate], corrected: Corrected, body: Sequence[Piece], body_pt: float
) -> list[Candidate]:
    """The headings as found, without those a person says are none, with those a person says are; in reading order."""
    kept = [heading for heading in headings if not corrected.plain & {*heading.pieces, *heading.kicker}]
    for piece in corrected.headings:
        heading = next((each for each in kept if piece in each.pieces), None)
        if heading is None:
            numbering = parse_numbering(piece.text)
            heading = Candidate([piece], piece.text, piece.size_pt / body_pt, numbering=numbering)
            kept.append(heading)
        heading.evidence.append(Evidence(CORRECTED, 10.0))
    position = {piece: number for number, piece in enumerate(body)}
    return sorted(kept, key=lambda heading: position[heading.pieces[0]])


def in_corrected_order(pieces: Sequence[Piece], corrected: Corrected) -> list[Piece]:
    """One page's pieces of the body with those a person placed at their places."""
    placed = [
        (order, piece)
        for piece in pieces
        if piece in corrected.by_piece and (order := corrected.by_piece[piece].order) is not None
    ]
    if not placed:
        return list(pieces)
    moved: Collection[Piece] = {piece for _, piece in placed}
    ordered = [piece for piece in pieces if piece not in moved]
    for order, piece in sorted(placed, key=lambda each: each[0]):
        ordered.insert(order - 1, piece)
    for number, piece in enumerate(ordered):
        piece.order = number
    return ordered


def text_at(page: PageBlocks, correction: Correction) -> str | None:
    """What the block reads that the correction is about; None where there is none on the page."""
    piece = _find(page, pieces_of(page), correction)
    return None if piece is None else piece.text


def is_same_block(first: BBoxNorm, second: BBoxNorm) -> bool:
    """Whether two boxes of a page are the same block's."""
    return _overlap(first, second) >= _SAME_BOX


def _find(frame: PageBlocks, pieces: Sequence[Piece], correction: Correction) -> Piece | None:
    best: tuple[float, Piece] | None = None
    for piece in pieces:
        overlap = _overlap(frame.on_upright_page(piece.bbox_norm), correction.bbox_norm)
        if overlap < _NEAR_BOX:
            continue
        alike = _alike(piece.text, correction.seen_text)
        if overlap < _SAME_BOX and alike < _SAME_TEXT:
            continue
        if best is None or overlap + alike > best[0]:
            best = (overlap + alike, piece)
    return best[1] if best else None


def _overlap(first: BBoxNorm, second: BBoxNorm) -> float:
    """Intersection over union."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (first, second))
    return width * height / (areas - width * height)


def _alike(first: str, second: str) -> float:
    a, b = letters_of(first)[:400], letters_of(second)[:400]
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() if a and b else 0.0
