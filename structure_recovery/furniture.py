"""Running headers, footers and page numbers: found over all pages by repetition and place, not by one page's label."""

from __future__ import annotations

import difflib
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ocr2_core.blocks import BlockLabel
from ocr2_core.geometry import NORM_MAX
from structure_recovery.elements import Piece
from structure_recovery.numbering import NumberKind, awaits_number, parse_numbering, roman_value
from structure_recovery.vocabulary import letters_of

# Furniture is looked for in the first and last rows of a page, inside these shares of its height.
TOP_ZONE, BOTTOM_ZONE = 0.14 * NORM_MAX, 0.88 * NORM_MAX
MAX_CHARACTERS = 160
# Places closer than this (thousandths of the height) count as the same place on two pages.
PLACE_TOLERANCE = 12.0
_FURNITURE_LABELS = (BlockLabel.PAGE_HEADER, BlockLabel.PAGE_FOOTER)
_PAGE_NUMBER = re.compile(r"(?<![\w.])([0-9]{1,4}|[ivxlc]{1,8})(?![\w.]*\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PageLabel:
    """A page number as printed: its value and whether it is roman."""

    value: int
    is_roman: bool


@dataclass(frozen=True)
class Furniture:
    """What was found: the pieces, and the printed label of every page whose number could be read or inferred."""

    pieces: frozenset[Piece]
    page_labels: dict[int, PageLabel]


def find_furniture(pages: Sequence[Sequence[Piece]], body_pt: float) -> Furniture:
    """Find the furniture of all pages.

    `pages` holds each page's pieces. Evidence, any one of which is enough: (a) a page number that counts up with the
    pages at the same place; (b) the same text but for digits at the same place on two pages or more; (c) a place at
    which most of the pages show furniture by (a) or (b); (d) the engine's label, at a page's edge, in small type.
    """
    edges = [piece for page in pages for piece in _edge_pieces(page)]
    numbers = _counting_numbers(edges, body_pt)
    found = set(numbers) | _repeated(edges, body_pt)
    found |= _in_furniture_places(edges, found, body_pt, page_count=sum(1 for page in pages if page))
    found |= {piece for piece in edges if _is_labelled(piece, body_pt)}
    return Furniture(frozenset(found), _complete_labels(numbers, len(pages)))


def _edge_pieces(page: Sequence[Piece]) -> list[Piece]:
    """Short pieces in the two outermost rows at the top and the bottom of a page."""
    texts = [piece for piece in page if piece.text]
    found: list[Piece] = []
    for is_top in (True, False):
        ordered = sorted(texts, key=lambda piece: piece.bbox_norm[1] if is_top else -piece.bbox_norm[3])
        rows = 0
        edge: float | None = None
        for piece in ordered:
            place = piece.y_centre
            inside = piece.bbox_norm[3] < TOP_ZONE if is_top else piece.bbox_norm[1] > BOTTOM_ZONE
            if not inside:
                break
            if edge is None or abs(place - edge) > PLACE_TOLERANCE / 2:
                rows, edge = rows + 1, place
            if rows > 2:
                break
            if len(piece.text) <= MAX_CHARACTERS and piece.label not in (BlockLabel.TABLE, BlockLabel.PICTURE):
                found.append(piece)
    return found


def _counting_numbers(edges: Sequence[Piece], body_pt: float) -> dict[Piece, PageLabel]:
    """Pieces that hold a page number: at their place, number minus page index is the same on several pages."""
    readings: dict[tuple[bool, int], list[tuple[Piece, PageLabel]]] = defaultdict(list)
    for piece in edges:
        for label in [] if _opens_chapter(piece.text) else _numbers_in(piece.text):
            readings[label.is_roman, label.value - piece.page_index].append((piece, label))
    numbers: dict[Piece, PageLabel] = {}
    for group in sorted(readings.values(), key=len, reverse=True):
        by_place: dict[bool, list[tuple[Piece, PageLabel]]] = defaultdict(list)
        for piece, label in group:
            by_place[piece.y_centre < NORM_MAX / 2].append((piece, label))
        for members in by_place.values():
            pages_at = _Places(piece for piece, _ in members)
            for piece, label in members:
                near = pages_at.around(piece) - 1
                # A lone number needs one companion; a number beside words could open a heading and needs more.
                alone = len(letters_of(piece.text)) <= len(str(label.value)) + 4
                if near >= (1 if alone else 3) and (alone or piece.is_set_like_text(body_pt)):
                    numbers.setdefault(piece, label)
    return numbers


def _numbers_in(text: str) -> list[PageLabel]:
    labels = []
    for word in _PAGE_NUMBER.findall(text):
        if word.isdigit():
            labels.append(PageLabel(int(word), False))
        elif (value := roman_value(word)) is not None and value < 100:
            labels.append(PageLabel(value, True))
    return labels[:1] + labels[-1:] if len(labels) > 1 else labels


def _repeated(edges: Sequence[Piece], body_pt: float) -> set[Piece]:
    """Pieces whose text, but for digits, stands at the same place on two pages or more."""
    by_text: dict[tuple[bool, str], list[Piece]] = defaultdict(list)
    for piece in edges:
        by_text[piece.y_centre < NORM_MAX / 2, _repeating_part(piece, body_pt)].append(piece)
    keys = sorted((key for key in by_text if len(key[1]) >= 6), key=lambda key: -len(by_text[key]))
    frequent = [key for key in keys if len(by_text[key]) >= 3][:50]
    for key in keys:
        # A misread letter makes a group of its own: let it join the frequent group it resembles.
        if len(by_text[key]) > 2:
            continue
        for main in frequent:
            if main[0] == key[0] and main != key and abs(len(main[1]) - len(key[1])) <= 3:
                matcher = difflib.SequenceMatcher(None, main[1], key[1], autojunk=False)
                if matcher.quick_ratio() > 0.85 and matcher.ratio() > 0.85:
                    by_text[main].extend(by_text.pop(key))
                    break
    found: set[Piece] = set()
    for (_, text), members in by_text.items():
        if not text:
            continue
        pages_at = _Places(members)
        usual_pt = statistics.median(piece.size_pt for piece in members)
        for piece in members:
            if pages_at.around(piece) > 1 and 0.8 < piece.size_pt / usual_pt < 1.25:
                found.add(piece)
    return found


class _Places:
    """On how many pages one of some pieces stands at about a height."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        pages: dict[int, set[int]] = defaultdict(set)
        for piece in pieces:
            pages[_place(piece)].add(piece.page_index)
        heights = {place + step for place in pages for step in (-1, 0, 1)}
        self._counts = {at: len(set().union(*(pages.get(at + step, ()) for step in (-1, 0, 1)))) for at in heights}

    def around(self, piece: Piece) -> int:
        return self._counts.get(_place(piece), 0)


def _place(piece: Piece) -> int:
    return round(piece.y_centre / PLACE_TOLERANCE)


def _opens_chapter(text: str) -> bool:
    """Whether the text is a lone "Chapter" or "Chapter 3", as chapters open with; it stands at one place, too."""
    numbering = parse_numbering(text)
    lone = numbering is not None and not numbering.title
    return awaits_number(text) or (
        lone and numbering is not None and numbering.kind in (NumberKind.PART, NumberKind.CHAPTER, NumberKind.APPENDIX)
    )


def _repeating_part(piece: Piece, body_pt: float) -> str:
    """What of the text repeats from page to page: all but numbers.

    Text that opens a chapter ("Chapter 3") or is set large ("Exercise 3") keeps them: there they tell headings apart.
    """
    if awaits_number(piece.text):
        return ""
    if _opens_chapter(piece.text) or not piece.is_set_like_text(body_pt):
        return letters_of(piece.text)
    words = [word for word in re.split(r"\s+", piece.text) if roman_value(word) is None]
    return re.sub(r"[\W\d_]+", "", " ".join(words).casefold())


def _in_furniture_places(edges: Sequence[Piece], found: set[Piece], body_pt: float, page_count: int) -> set[Piece]:
    """Pieces at a place that holds furniture on at least a third of the pages (a section title in the header)."""
    pages_at = _Places(found)
    added = set()
    for piece in edges:
        if pages_at.around(piece) >= max(3, page_count / 3) and piece.is_set_like_text(body_pt):
            added.add(piece)
    return added


def _is_labelled(piece: Piece, body_pt: float) -> bool:
    at_edge = piece.bbox_norm[3] < 0.09 * NORM_MAX or piece.bbox_norm[1] > 0.91 * NORM_MAX
    return piece.label in _FURNITURE_LABELS and at_edge and piece.is_set_like_text(body_pt)


def _complete_labels(numbers: dict[Piece, PageLabel], page_count: int) -> dict[int, PageLabel]:
    """The labels read, and those of pages in between where both neighbours agree on the counting."""
    labels: dict[int, PageLabel] = {}
    for piece, label in sorted(numbers.items(), key=lambda item: (item[0].page_index, item[0].bbox_norm)):
        labels.setdefault(piece.page_index, label)
    read = sorted(labels)
    for before, after in pairwise(read):
        first, last = labels[before], labels[after]
        if first.is_roman == last.is_roman and last.value - first.value == after - before:
            for page_index in range(before + 1, after):
                labels[page_index] = PageLabel(first.value + page_index - before, first.is_roman)
    if read and not labels[read[-1]].is_roman:
        for page_index in range(read[-1] + 1, page_count):
            labels[page_index] = PageLabel(labels[read[-1]].value + page_index - read[-1], False)
    return labels
