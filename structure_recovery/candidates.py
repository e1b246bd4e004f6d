"""Pieces that may be headings, with those put together that are printed as one: `Chapter 3` above its title."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ocr2_core.blocks import BlockLabel
from ocr2_core.geometry import NORM_MAX
from structure_recovery.contents import ContentsEntry
from structure_recovery.elements import Piece, join_texts
from structure_recovery.numbering import Numbering, NumberKind, awaits_number, parse_numbering
from structure_recovery.vocabulary import CAPTION_WORDS, letters_of

MAX_CHARACTERS = 200
MAX_LINES = 4

HEADING_LABELS = (BlockLabel.TITLE, BlockLabel.SECTION_HEADER)
CAPTION = re.compile(
    rf"^(?:{CAPTION_WORDS})\s*[A-Z]?\.?[0-9ivx]+(?:[.\-–][0-9]+)*\s*(?:[:.–—-]|\s|$)|^[図表图圖]\s*[0-9]", re.IGNORECASE
)
_CANDIDATE_LABELS = (*HEADING_LABELS, BlockLabel.TEXT, BlockLabel.LIST_ITEM, BlockLabel.PAGE_HEADER)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason for or against: its name, its weight (negative: against), and what was seen."""

    name: str
    weight: float
    detail: str = ""


@dataclass(eq=False, slots=True)
class Candidate:
    """A possible heading: one piece, or a few printed as one (a number beside its title, a title in two blocks).

    `kicker` holds a spelled number printed above the title ("CHAPTER ONE"): read as the number, not part of the text.
    """

    pieces: list[Piece]
    text: str
    size_ratio: float
    kicker: list[Piece] = field(default_factory=list)
    numbering: Numbering | None = None
    evidence: list[Evidence] = field(default_factory=list)
    entry: ContentsEntry | None = None
    outline_level: int | None = None

    @property
    def page_index(self) -> int:
        return self.pieces[0].page_index

    @property
    def is_bold(self) -> bool | None:
        return self.pieces[-1].is_bold

    @property
    def is_size_measured(self) -> bool:
        return all(piece.is_size_measured for piece in self.pieces)

    @property
    def is_named(self) -> bool:
        """Whether a number, the contents or the outline say that this is a heading."""
        numbered = self.numbering is not None and self.numbering.kind is not NumberKind.LETTER
        return numbered or self.entry is not None or self.outline_level is not None

    @property
    def score(self) -> float:
        return sum(evidence.weight for evidence in self.evidence)


def find_candidates(body: Sequence[Piece], body_pt: float) -> list[Candidate]:
    candidates: list[Candidate] = []
    used: set[Piece] = set()
    for index, piece in enumerate(body):
        if piece in used or not _may_be_heading(piece):
            continue
        pieces = [piece]
        for other in body[index + 1 : index + 4]:
            if not _continues_heading(pieces, other, body_pt):
                break
            pieces.append(other)
        used.update(pieces)
        text = _text_of(pieces)
        size = max(part.size_pt for part in pieces)
        candidate = Candidate(pieces, text, size / body_pt, numbering=parse_numbering(text))
        if candidate.numbering is not None:
            candidate.text = _spaced(text, candidate.numbering)
        if candidate.numbering is not None and candidate.numbering.is_spelled and candidate.numbering.title:
            while len(pieces) > 1 and letters_of(pieces[0].text) in letters_of(candidate.numbering.printed):
                candidate.kicker.append(pieces.pop(0))
            candidate.text = _text_of(pieces)
        candidates.append(candidate)
    return candidates


def _spaced(text: str, numbering: Numbering) -> str:
    """The text with a space behind its number, which OCR is apt to drop ("2.4Installation")."""
    number, rest = numbering.printed, text[len(numbering.printed) :]
    is_glued = numbering.kind is NumberKind.DECIMAL and text.startswith(number) and rest[:1].isalpha()
    return f"{number} {rest}" if is_glued else text


def _text_of(pieces: Sequence[Piece]) -> str:
    text = ""
    for piece in pieces:
        text = join_texts(text, piece.text)
    return text


def _may_be_heading(piece: Piece) -> bool:
    if (
        piece.label not in _CANDIDATE_LABELS
        or not 0 < len(piece.text) <= MAX_CHARACTERS
        or len(piece.lines) > MAX_LINES
    ):
        return False
    return any(character.isalnum() for character in piece.text)


def _continues_heading(pieces: Sequence[Piece], other: Piece, body_pt: float) -> bool:
    """Whether `other` is printed as part of the heading that `pieces` begin."""
    last = pieces[-1]
    if other.page_index != last.page_index or not _may_be_heading(other) or CAPTION.match(other.text):
        return False
    numbering = parse_numbering(" ".join(piece.text for piece in pieces))
    other_numbering = parse_numbering(other.text)
    gap_pt = (other.bbox_norm[1] - last.bbox_norm[3]) / NORM_MAX * last.height_pt
    larger = max(last.size_pt, other.size_pt)
    if len(pieces) == 1 and awaits_number(last.text):
        completed = parse_numbering(f"{last.text} {other.text}")
        return completed is not None and not completed.title and gap_pt < 2 * larger
    only_number = numbering is not None and not numbering.title
    if only_number:
        same_row = other.bbox_norm[1] < last.bbox_norm[3] and other.bbox_norm[3] > last.bbox_norm[1]
        if same_row and other.bbox_norm[0] > last.bbox_norm[0]:
            return True
        below = -0.3 * larger < gap_pt < 3.5 * larger
        is_word = numbering is not None and numbering.kind in (NumberKind.PART, NumberKind.CHAPTER, NumberKind.APPENDIX)
        stands_out = other.size_pt > 1.15 * body_pt or other.label in HEADING_LABELS or other.is_bold is True
        return below and stands_out and other_numbering is None and (is_word or last.size_pt > 1.3 * body_pt)
    both_set_apart = all(piece.label in HEADING_LABELS or piece.size_pt > 1.2 * body_pt for piece in (last, other))
    same_style = abs(math.log(other.size_pt / last.size_pt)) < 0.08 and last.is_bold == other.is_bold
    full_line = last.bbox_norm[2] - last.bbox_norm[0] > 0.5 * NORM_MAX
    close = -0.3 * larger < gap_pt < 0.6 * larger
    return both_set_apart and same_style and full_line and close and other_numbering is None
