"""Infinite decoding: a document of any length read in page groups, with a cache that never holds more than one group.

A document is one state machine (a generator of requests, see `operations`): it asks for a sequence, feeds tokens,
hands the sequence over to the next group, and settles every page. It holds at most one open sequence. A page's result
is handed out once it is final: when its group's page markers are reconciled with its pages.

What a group's trouble costs: pages that cannot be told apart are read alone (see `alignment`), a page that looped or
hit its budget is read alone, and the pages behind it in a sequence opened anew. After trouble the next group starts
clean whatever the boundary, so that no broken text is carried on. After `max_faults` in one group the rest is read
page by page; each pass settles a page or counts a fault, so every document ends.

Going on after a kill: `Grouping.resume_page_index` says where to start feeding again. With RESTART the output is the
same as if nothing had happened, because groups share no state. With CARRY and RECOMPUTE the overlap page is read again
first, alone, to have a ring to carry: the ring's context then lacks the pages before it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ocr2_core.ledger import PageStatus
from ocr2_core.ocr2.guards import GuardSettings
from ocr2_core.ocr2.operations import (
    AwaitPages,
    CloseSequence,
    GroupNeverFits,
    HandOver,
    NoRoom,
    OpenSequence,
    PageReading,
    ReleasePages,
    Request,
    SequenceLost,
    SourcePage,
)
from ocr2_core.ocr2.page_decoder import Boundary, EncodedPage
from ocr2_core.ocr2.page_groups import Grouping
from ocr2_core.ocr2.sequence_reading import Ending, Logits, OutputVocabulary, Pass, PassSettings, read_pass
from ocr2_core.ocr2.settling import UNSETTLED, Settling, alone_reading, settle_pass

logger = logging.getLogger(__name__)

Requests = Generator[Request, Any, None]


@dataclass(frozen=True, slots=True)
class DecodingSettings:
    """`timeout_seconds`: how long a document may be decoded, from its first sequence on. `release_finished_pages`:
    pages leave the cache two pages after they were read, which saves memory and hides them from the pages that
    follow."""

    grouping: Grouping
    boundary: Boundary = Boundary.RESTART
    guards: GuardSettings = field(default_factory=GuardSettings)
    timeout_seconds: float | None = None
    release_finished_pages: bool = False
    verifies_carried: bool = True
    max_faults: int = 3


@dataclass(frozen=True, slots=True)
class PageGroup:
    """`overlap` pages were read in the group before; `new` ones were not."""

    overlap: tuple[SourcePage, ...]
    new: tuple[SourcePage, ...]
    is_last: bool

    @property
    def pages(self) -> tuple[SourcePage, ...]:
        return (*self.overlap, *self.new)


class DocumentDecoding:
    """One document. Feed it pages in order of their index, then `end` it; `requests` runs it; take results as they
    come.

    Every page that was fed comes out exactly once, in order.
    """

    def __init__(
        self,
        vocabulary: OutputVocabulary,
        settings: DecodingSettings,
        *,
        name: str = "document",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._vocabulary = vocabulary
        self._settings = settings
        self._clock = clock
        self._deadline_s: float | None = None
        self._arrived: deque[SourcePage] = deque()
        self._has_ended = False
        self._last_fed = -1
        self._overlap: tuple[SourcePage, ...] = ()
        self._settling = Settling()
        self._is_open = False
        self._open_prompt: tuple[int, ...] = ()
        self._unfed_token_ids: tuple[int, ...] = ()

    def feed(self, page: SourcePage) -> None:
        """Add the next page."""
        if self._has_ended or page.page_index <= self._last_fed:
            raise ValueError(f"page {page.page_index + 1} came after page {self._last_fed + 1} or after the end")
        self._last_fed = page.page_index
        self._arrived.append(page)
        self._settling.expect(page.page_index)

    def end(self) -> None:
        """No more pages will come."""
        self._has_ended = True

    def has_group(self) -> bool:
        """Whether the next group can be read. It takes a look at one page behind it, to know whether it is the last."""
        if self._has_ended or not self._arrived:
            return self._has_ended
        return self._arrived[-1].page_index >= self._next_group_end()

    def take_results(self) -> list[PageReading]:
        """The pages that became final since the last call, in order."""
        return self._settling.take()

    def requests(self) -> Requests:
        """Read the document. Raises GroupNeverFits."""
        while True:
            while not self.has_group():
                yield AwaitPages()
            if not self._arrived:
                break
            group = self._take_group()
            yield from self._read_group(group)
            next_first = self._grouping.first_page_of(self._grouping.group_of(group.new[0].page_index) + 1)
            self._overlap = tuple(page for page in group.pages if page.page_index >= next_first)
            self._settling.forget_before(next_first)
        yield from self._close()

    @property
    def _grouping(self) -> Grouping:
        return self._settings.grouping

    @property
    def _carries_on(self) -> bool:
        """Whether decoding goes on over a group's end; without overlap there is nothing to carry it."""
        return self._settings.boundary is not Boundary.RESTART and self._grouping.chunk_overlap > 0

    def _goes_on_after(self, group: PageGroup) -> bool:
        return self._carries_on and not group.is_last

    def _last_indexes(self, pages: Sequence[SourcePage]) -> list[int]:
        """The pages that the next group may share."""
        return [page.page_index for page in pages[max(0, len(pages) - self._grouping.chunk_overlap) :]]

    def _prompt(self, page_count: int, group: PageGroup | None = None) -> tuple[int, ...]:
        """A page by itself has a prompt of its own, unless a larger group will follow in its sequence."""
        is_single = page_count == 1 and (group is None or not self._goes_on_after(group))
        return self._vocabulary.single_prompt_token_ids if is_single else self._vocabulary.group_prompt_token_ids

    def _next_group_end(self) -> int:
        return self._grouping.end_of(self._grouping.group_of(self._arrived[0].page_index))

    def _take_group(self) -> PageGroup:
        end = self._next_group_end()
        first = end - self._grouping.page_chunk_size
        new = []
        while self._arrived and self._arrived[0].page_index < end:
            new.append(self._arrived.popleft())
        overlap = tuple(page for page in self._overlap if page.page_index >= first)
        return PageGroup(overlap, tuple(new), is_last=self._has_ended and not self._arrived)

    def _read_group(self, group: PageGroup) -> Requests:
        pages, result = yield from self._read_on(group)
        is_counted = len(result.pieces) == len(pages)
        last_text = None
        if self._goes_on_after(group) and self._settings.verifies_carried and result.is_complete and is_counted:
            last_text = yield from self._read_last_beside(group, pages)
        faults = 0
        while pages := (yield from self._settle(pages, result, last_text)):
            faults, last_text = faults + 1, None
            is_last_resort = faults > self._settings.max_faults
            if is_last_resort or (len(pages) == 1 and self._settling.is_suspect(pages[0].page_index)):
                for page in pages:
                    self._settling.suspect(page.page_index, UNSETTLED)
                    self._settling.settle_alone((yield from self._read_alone(page)))
                break
            result = yield from self._read_anew(pages)
        may_hand_over = self._goes_on_after(group) or (not group.is_last and self.has_group())
        if faults or not may_hand_over:
            yield from self._close()

    def _read_on(self, group: PageGroup) -> Generator[Request, Any, tuple[list[SourcePage], Pass]]:
        """The group's first pass: in the sequence that is open, else in a new one."""
        boundary = self._settings.boundary if group.overlap else Boundary.RESTART
        # a sequence keeps its prompt; what starts clean must start with its own
        fits_prompt = boundary is not Boundary.RESTART or self._open_prompt == self._prompt(len(group.pages), group)
        if self._is_open and fits_prompt:
            is_carry = boundary is Boundary.CARRY
            kept = tuple(page.page_index for page in group.overlap) if is_carry else ()
            added = tuple(page.encoded for page in (group.new if is_carry else group.pages))
            to_read = list(group.pages if boundary is Boundary.RESTART else group.new)
            try:
                logits = yield HandOver(kept, added, boundary)
                result = yield from self._pass(to_read, logits, group)
                self._after_pass(result)
                return to_read, result
            except NoRoom:
                logger.info("%s: no room to hand over; the group starts anew", self.name)
                self._is_open = False
            except SequenceLost as error:
                self._is_open = False
                return to_read, Pass(ending=Ending.LOST, detail=str(error), is_open=False)
        to_read = list(group.pages)
        return to_read, (yield from self._read_anew(to_read, group))

    def _read_anew(self, pages: Sequence[SourcePage], group: PageGroup | None = None) -> Generator[Request, Any, Pass]:
        yield from self._close()
        prompt = self._prompt(len(pages), group)
        return (yield from self._open_and_read(pages, tuple(page.encoded for page in pages), prompt, group))

    def _read_alone(self, page: SourcePage) -> Generator[Request, Any, PageReading]:
        """The page by itself, at a higher resolution where there is one."""
        yield from self._close()
        prompt = self._prompt(1)
        encodings = [page.encoded]
        try:
            encodings.insert(0, page.encode_alone())
        except Exception as error:
            logger.warning("%s: page %d is read again as it was: %s", self.name, page.page_index + 1, error)
        result = Pass()
        for encoded in encodings:
            try:
                result = yield from self._open_and_read([page], (encoded,), prompt)
                break
            except GroupNeverFits as error:
                result = Pass(ending=Ending.LOST, detail=str(error))
        yield from self._close()
        return alone_reading(page.page_index, result)

    def _read_last_beside(self, group: PageGroup, pages: Sequence[SourcePage]) -> Generator[Request, Any, str | None]:
        """Read the last page of a group by itself, beside the sequence that will be handed over.

        A decoder that is to go on at a group's end need not say there how many pages it read, so a skipped page would
        shift all that follow: only the last page's text shows whether the count of markers is right. (With RESTART
        the decoder stops by itself.) Finished pages make room for it. None where it cannot be read.
        """
        kept = set(self._last_indexes(group.pages))
        kept.add(pages[-1].page_index)
        if self._settings.release_finished_pages:
            kept.update(page.page_index for page in pages[:-2])
        yield ReleasePages(tuple(page.page_index for page in group.pages if page.page_index not in kept))
        try:
            logits = yield OpenSequence((pages[-1].encoded,), self._prompt(1))
        except (NoRoom, SequenceLost):
            return None
        result = yield from self._pass(pages[-1:], logits, None)
        if result.is_open:
            yield CloseSequence()
        reading = alone_reading(pages[-1].page_index, result)
        return None if reading.status is PageStatus.FAILED else reading.text

    def _open_and_read(
        self,
        pages: Sequence[SourcePage],
        encoded: tuple[EncodedPage, ...],
        prompt: tuple[int, ...],
        group: PageGroup | None = None,
    ) -> Generator[Request, Any, Pass]:
        if self._deadline_s is not None and self._clock() >= self._deadline_s:
            return Pass(ending=Ending.TIMEOUT)
        try:
            logits = yield OpenSequence(encoded, prompt)
        except SequenceLost as error:
            return Pass(ending=Ending.LOST, detail=str(error), is_open=False)
        if self._deadline_s is None and self._settings.timeout_seconds is not None:
            self._deadline_s = self._clock() + self._settings.timeout_seconds
        self._is_open, self._open_prompt = True, prompt
        result = yield from self._pass(pages, logits, group)
        self._after_pass(result)
        return result

    def _after_pass(self, result: Pass) -> None:
        self._is_open = result.is_open
        self._unfed_token_ids = result.unfed_token_ids

    def _pass(
        self, pages: Sequence[SourcePage], logits: Logits | None, group: PageGroup | None
    ) -> Generator[Request, Any, Pass]:
        settings = PassSettings(
            self._settings.guards, self._settings.release_finished_pages, self._clock, self._deadline_s
        )
        goes_on = group is not None and self._goes_on_after(group)
        kept = self._last_indexes(pages) if goes_on else []
        return (
            yield from read_pass(
                [page.page_index for page in pages],
                logits,
                self._vocabulary,
                settings,
                unfed_token_ids=self._unfed_token_ids,
                ends_when_full=goes_on,
                kept_page_indexes=frozenset(kept),
            )
        )

    def _settle(
        self, pages: Sequence[SourcePage], result: Pass, last_text: str | None
    ) -> Generator[Request, Any, list[SourcePage]]:
        """Settle what the pass read; returns the pages that still have to be read."""
        settling = settle_pass([page.page_index for page in pages], result, self._settling, last_text)
        by_index = {page.page_index: page for page in pages}
        if not result.is_complete:
            yield from self._close()
        reading: PageReading | None = None
        while True:
            try:
                page_index = settling.send(reading) if reading is not None else next(settling)
            except StopIteration as end:
                remaining = [by_index[page_index] for page_index in end.value]
                if remaining:
                    yield from self._close()
                return remaining
            reading = yield from self._read_alone(by_index[page_index])

    def _close(self) -> Requests:
        if self._is_open:
            self._is_open = False
            yield CloseSequence()
