"""Which written piece belongs to which page, when a decoder wrote more or fewer pieces than it was shown pages.

A decoder may skip a page, write one twice, break one in two, invent one or stop early; the count of its page markers
says that something happened, not where. To learn where, pages are read alone and compared. The search is a bisection:
one fault in n pages costs about log2(n) readings, and none where counts agree and no piece repeats its neighbour.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

_TAG = re.compile(r"<\|det\|>.*?<\|/det\|>|<\|ref\|>.*?<\|/ref\|>|<PAGE>|\s+", re.DOTALL)
_SHINGLE_CHARACTERS = 5
# Half a page agrees with its whole in 0.67. A page that is taken for unlike costs nothing but its own reading alone.
_LEAST_SIMILARITY = 0.75
_TIE = 0.03
_DUPLICATE_SIMILARITY = 0.95

Shingles = Counter[str]


def shingles(text: str) -> Shingles:
    """Multiset of the text's 5-character pieces, without tags, boxes and spaces."""
    letters = _TAG.sub("", text)
    count = max(1, len(letters) - _SHINGLE_CHARACTERS + 1)
    return Counter(letters[start : start + _SHINGLE_CHARACTERS] for start in range(count) if letters)


def similarity(first: Shingles, second: Shingles) -> float:
    """Dice coefficient, 0 to 1; two empty pages are alike."""
    total = first.total() + second.total()
    return 1.0 if total == 0 else 2 * (first & second).total() / total


def are_duplicates(first: str, second: str) -> bool:
    return similarity(shingles(first), shingles(second)) >= _DUPLICATE_SIMILARITY


@dataclass(slots=True)
class Alignment:
    """`piece_of`: page position → piece; pages without one were skipped or never reached. `dropped`: pieces left over.

    `unmatched`: page positions whose reading alone resembles no piece.
    """

    piece_of: dict[int, int] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    unmatched: set[int] = field(default_factory=set)


def align(
    page_count: int, pieces: Sequence[str], known: Mapping[int, str | None]
) -> Generator[int, str | None, Alignment]:
    """Find each page's piece. Yields page positions to be read alone and takes their text (None: could not be read).

    `known` holds readings of pages that exist already, such as the overlap page's in the group before; None there is
    a page that surely has no piece.
    """
    search = _Search(page_count, [shingles(piece) for piece in pieces], dict(known))
    yield from search.run(0, page_count, 0, len(pieces))
    search.found.dropped.sort()
    return search.found


class _Search:
    def __init__(self, page_count: int, pieces: list[Shingles], known: dict[int, str | None]) -> None:
        self.found = Alignment()
        self._page_count = page_count
        self._pieces = pieces
        self._readings = known
        self._unreadable: set[int] = set()
        # pieces that resemble a page which another piece was given to
        self._doubtful: set[int] = set()

    def run(self, first: int, end: int, first_piece: int, end_piece: int) -> Generator[int, str | None, None]:
        """Align pages first..end with pieces first_piece..end_piece (ends excluded)."""
        while True:
            pages = [page for page in range(first, end) if page not in self.found.unmatched]
            if not pages:
                self.found.dropped.extend(range(first_piece, end_piece))
                return
            if first_piece == end_piece:
                return
            page = self._page_to_compare(pages, first_piece, end_piece)
            if page is None:
                self._pair_off(pages, first_piece, end_piece)
                return
            if page not in self._readings:
                reading = yield page
                if reading is None:
                    self._unreadable.add(page)
                    continue
                self._readings[page] = reading
            piece = self._matching_piece(pages, page, first_piece, end_piece)
            if piece is not None:
                break
            self.found.unmatched.add(page)
        self.found.piece_of[page] = piece
        yield from self.run(first, page, first_piece, piece)
        yield from self.run(page + 1, end, piece + 1, end_piece)

    def _pair_off(self, pages: list[int], first_piece: int, end_piece: int) -> None:
        """In order. Counts differ only where no page could be read alone; then nothing better is known."""
        count = min(len(pages), end_piece - first_piece)
        self.found.piece_of.update(zip(pages[:count], range(first_piece, first_piece + count), strict=True))
        self.found.unmatched.update(pages[count:])
        self.found.dropped.extend(range(first_piece + count, end_piece))

    def _page_to_compare(self, pages: list[int], first_piece: int, end_piece: int) -> int | None:
        """The page whose reading tells most now; None where pages and pieces pair off and nothing speaks against it."""
        read_already = next((page for page in pages if page in self._readings), None)
        if read_already is not None:
            return read_already
        readable = [page for page in pages if page not in self._unreadable]
        if not readable:
            return None
        count = end_piece - first_piece
        if len(pages) == count:
            suspect = self._suspect_piece(first_piece, end_piece)
            return pages[suspect - first_piece] if suspect is not None and len(readable) == len(pages) else None
        is_everything = end_piece == len(self._pieces) and pages[-1] == self._page_count - 1
        if count < len(pages) and is_everything and first_piece == 0:
            # the commonest fault is an early end: then this page has the last piece
            return pages[count - 1] if pages[count - 1] in readable else readable[-1]
        return readable[len(readable) // 2]

    def _suspect_piece(self, first_piece: int, end_piece: int) -> int | None:
        doubtful = [piece for piece in range(first_piece, end_piece) if piece in self._doubtful]
        if doubtful:
            return doubtful[0]
        for piece in range(first_piece + 1, end_piece):
            if similarity(self._pieces[piece - 1], self._pieces[piece]) >= _DUPLICATE_SIMILARITY:
                return piece
        return None

    def _matching_piece(self, pages: list[int], page: int, first_piece: int, end_piece: int) -> int | None:
        text = self._readings[page]
        if text is None:
            return None
        reading = shingles(text)
        scores = {piece: similarity(reading, self._pieces[piece]) for piece in range(first_piece, end_piece)}
        best = max(scores.values())
        if best < _LEAST_SIMILARITY:
            return None
        alike = [piece for piece, score in scores.items() if score >= best - _TIE]
        piece = self._best_fitting(pages, page, alike, scores, first_piece, end_piece)
        self._doubtful.update(other for other in alike if other != piece)
        return piece

    @staticmethod
    def _best_fitting(
        pages: list[int], page: int, alike: list[int], scores: dict[int, float], first_piece: int, end_piece: int
    ) -> int:
        """Of pieces alike, the one that leaves as many pieces as pages on both sides, or on one."""
        before, after = pages.index(page), len(pages) - pages.index(page) - 1
        pairs_off: tuple[Callable[[int], bool], ...] = (
            lambda piece: end_piece - piece - 1 == after and piece - first_piece == before,
            lambda piece: end_piece - piece - 1 == after,
            lambda piece: piece - first_piece == before,
        )
        for is_fitting in pairs_off:
            fitting = [piece for piece in alike if is_fitting(piece)]
            if fitting:
                return fitting[0]
        return max(alike, key=lambda piece: scores[piece])
