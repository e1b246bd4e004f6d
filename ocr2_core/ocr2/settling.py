"""From what a pass wrote to one final reading a page: pieces told apart, faults named, pages to be read again
picked."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ocr2_core.ledger import PageStatus
from ocr2_core.ocr2.alignment import Alignment, align, are_duplicates
from ocr2_core.ocr2.operations import PageReading
from ocr2_core.ocr2.sequence_reading import Ending, Pass, Piece

# Why a page was read again, or failed. The word before the colon is for programs.
MISSING = "missing page: the decoder left it out"
EARLY_END = "early end: the decoder stopped before this page"
UNCLEAR = "unclear page: what the decoder wrote for it resembles no reading of the page alone"
DUPLICATE = "duplicate page: the decoder wrote it more than once; one reading is kept"
EXTRA = "extra page: the decoder wrote a page that is not there; it was dropped"
EMPTY = "empty page: the decoder wrote nothing for it"
UNSETTLED = "unsettled group: it had too much trouble to be read on together"
LOOP = "loop: the decoder repeated itself"
TRUNCATED = "truncated: the page's token budget was used up"
TIMEOUT = "timeout: the document's time was used up"
LOST = "decoder error"

_BROKEN = {Ending.LOOP: LOOP, Ending.TRUNCATED: TRUNCATED, Ending.TIMEOUT: TIMEOUT, Ending.LOST: LOST}


class Settling:
    """Readings of a document's pages, each settled once and given out in page order."""

    def __init__(self) -> None:
        self._expected: dict[int, PageReading | None] = {}
        self._settled: dict[int, PageReading] = {}
        self._reasons: dict[int, str] = {}

    def expect(self, page_index: int) -> None:
        self._expected[page_index] = None

    def is_settled(self, page_index: int) -> bool:
        return page_index in self._settled

    def text_of(self, page_index: int) -> str | None:
        """The text of a page that was read well, as long as it is kept."""
        reading = self._settled.get(page_index)
        return None if reading is None or reading.status is PageStatus.FAILED else reading.text

    def is_suspect(self, page_index: int) -> bool:
        return page_index in self._reasons

    def suspect(self, page_index: int, reason: str) -> None:
        """Note the trouble with a page; the first is told. When the page is settled, it is so as repaired."""
        self._reasons.setdefault(page_index, reason)

    def settle_piece(self, page_index: int, piece: Piece) -> None:
        reason = self._reasons.get(page_index)
        status = PageStatus.REPAIRED if reason else PageStatus.OK
        self._settle(PageReading(page_index, piece.text, piece.token_count, status, reason, piece.duration_s))

    def settle_alone(self, reading: PageReading) -> None:
        """Settle a page by its reading alone, which is never `ok`: something made it necessary."""
        reason = self._reasons.get(reading.page_index, UNCLEAR)
        status = PageStatus.REPAIRED
        if reading.status is PageStatus.FAILED:
            status = PageStatus.FAILED
            reason = _both(reason, reading.reason or LOST)
        elif not reading.text.strip():
            reason = _both(reason, "no text found by itself either")
        else:
            reason = _both(reason, "read again alone")
        self._settle(
            PageReading(reading.page_index, reading.text, reading.token_count, status, reason, reading.duration_s)
        )

    def settle_failed(self, page_index: int, reason: str, piece: Piece | None = None) -> None:
        piece = piece or Piece("", 0, 0.0)
        reason = _both(self._reasons[page_index], reason) if page_index in self._reasons else reason
        self._settle(
            PageReading(page_index, piece.text, piece.token_count, PageStatus.FAILED, reason, piece.duration_s)
        )

    def take(self) -> list[PageReading]:
        """The readings at the head, up to the first page that is not settled."""
        taken = []
        while self._expected:
            page_index, reading = next(iter(self._expected.items()))
            if reading is None:
                break
            del self._expected[page_index]
            taken.append(reading)
        return taken

    def forget_before(self, page_index: int) -> None:
        """Drop what was kept of earlier pages for comparing."""
        self._settled = {page: reading for page, reading in self._settled.items() if page >= page_index}
        self._reasons = {page: reason for page, reason in self._reasons.items() if page >= page_index}

    def _settle(self, reading: PageReading) -> None:
        if reading.page_index in self._settled:
            raise ValueError(f"page {reading.page_index + 1} was settled before")
        self._settled[reading.page_index] = reading
        self._expected[reading.page_index] = reading


def _both(first: str, second: str) -> str:
    return first if first == second else f"{first}; {second}"


def alone_reading(page_index: int, result: Pass) -> PageReading:
    """What a pass over one page gives. A page written in several pieces is put together again, repeats left out."""
    pieces: list[Piece] = []
    for piece in [*result.pieces, *([result.broken] if result.broken else [])]:
        if piece.text.strip() and not any(are_duplicates(piece.text, other.text) for other in pieces):
            pieces.append(piece)
    text = "\n".join(piece.text for piece in pieces)
    token_count = sum(piece.token_count for piece in pieces)
    duration_s = sum(piece.duration_s for piece in pieces)
    reason = None if result.is_complete or result.ending is Ending.EXTRA else _broken_reason(result)
    status = PageStatus.OK if reason is None else PageStatus.FAILED
    return PageReading(page_index, text, token_count, status, reason, duration_s)


def _broken_reason(result: Pass) -> str:
    reason = _BROKEN[result.ending]
    return f"{reason}: {result.detail}" if result.detail else reason


def settle_pass(
    page_indexes: Sequence[int], result: Pass, settling: Settling, last_text: str | None = None
) -> Generator[int, PageReading, list[int]]:
    """Settle the pages of a pass. Yields pages to be read alone, takes their readings, returns those still to be read.

    Pages settled before (the overlap) are read for comparison only. `last_text`: the last page read alone, where it
    was.
    """
    count = len(page_indexes)
    reached = count
    known: dict[int, str | None] = {}
    readings: dict[int, PageReading] = {}
    for position, page_index in enumerate(page_indexes):
        if settling.is_settled(page_index):
            known[position] = settling.text_of(page_index)
    if last_text is not None:
        known[count - 1] = last_text
    if result.broken is not None or not (result.is_complete or result.ending is Ending.EXTRA):
        reached = min(len(result.pieces), count)
    pages_to_align = reached
    if result.ending in (Ending.LOOP, Ending.TRUNCATED) and reached < count:
        broken = page_indexes[reached]
        if not settling.is_settled(broken):
            settling.suspect(broken, _broken_reason(result))
            readings[reached] = yield broken
            known[reached] = _usable_text(readings[reached])
        pages_to_align = reached + 1
    aligning = align(pages_to_align, [piece.text for piece in result.pieces], known)
    try:
        position = next(aligning)
        while True:
            readings[position] = yield page_indexes[position]
            position = aligning.send(_usable_text(readings[position]))
    except StopIteration as end:
        alignment: Alignment = end.value
    _name_dropped(page_indexes, result, alignment, settling)
    remaining = _settle_aligned(page_indexes[:pages_to_align], result, alignment, readings, settling)
    not_reached = list(page_indexes[pages_to_align:])
    if result.ending is Ending.LOST and not_reached:
        settling.suspect(not_reached[0], _broken_reason(result))
    if result.ending is not Ending.TIMEOUT:
        return [*remaining, *(page for page in not_reached if not settling.is_settled(page))]
    for page_index in [*remaining, *not_reached]:
        if not settling.is_settled(page_index):
            is_broken = not_reached[:1] == [page_index]
            settling.settle_failed(page_index, TIMEOUT, result.broken if is_broken else None)
    return []


def _usable_text(reading: PageReading) -> str | None:
    return None if reading.status is PageStatus.FAILED else reading.text


def _name_dropped(page_indexes: Sequence[int], result: Pass, alignment: Alignment, settling: Settling) -> None:
    """Say at a page beside each piece left over what was dropped there."""
    page_of = {piece: position for position, piece in alignment.piece_of.items()}
    for dropped in alignment.dropped:
        before = max((piece for piece in page_of if piece < dropped), default=None)
        after = min((piece for piece in page_of if piece > dropped), default=None)
        first = -1 if before is None else page_of[before]
        end = len(page_indexes) if after is None else page_of[after]
        unmatched = [position for position in range(first + 1, end) if position in alignment.unmatched]
        if unmatched:
            settling.suspect(page_indexes[unmatched[0]], UNCLEAR)
            continue
        neighbours = [piece for piece in (before, after) if piece is not None]
        text = result.pieces[dropped].text
        repeated = [piece for piece in neighbours if are_duplicates(text, result.pieces[piece].text)]
        for piece in (repeated or neighbours)[:1]:
            settling.suspect(page_indexes[page_of[piece]], DUPLICATE if repeated else EXTRA)


def _settle_aligned(
    page_indexes: Sequence[int],
    result: Pass,
    alignment: Alignment,
    readings: dict[int, PageReading],
    settling: Settling,
) -> list[int]:
    """Settle the pages that have a piece or a reading alone; returns the others, in order."""
    last_written = max(alignment.piece_of, default=-1)
    remaining = []
    for position, page_index in enumerate(page_indexes):
        if settling.is_settled(page_index):
            continue
        piece = result.pieces[alignment.piece_of[position]] if position in alignment.piece_of else None
        if piece is not None and piece.text.strip():
            settling.settle_piece(page_index, piece)
            continue
        if piece is not None:
            settling.suspect(page_index, EMPTY)
        elif position > last_written:
            settling.suspect(page_index, EARLY_END if result.is_complete else MISSING)
        else:
            settling.suspect(page_index, MISSING)
        if position in readings:
            settling.settle_alone(readings[position])
        else:
            remaining.append(page_index)
    return remaining
