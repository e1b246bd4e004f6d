"""Continuous batching: many documents decode together, each step feeding one token to every running sequence.

Documents come and go at any step. One is admitted when fewer than `max_concurrency` are being read. A sequence is
opened when it fits under the watermark, oldest request first and none overtaking, so nobody starves; with an empty
pool it may use all of it, so nobody waits for ever. A document's error ends that document only.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ocr2_core.errors import EngineError
from ocr2_core.ocr2.errors import PoolExhausted
from ocr2_core.ocr2.infinite_decoding import DocumentDecoding, Requests
from ocr2_core.ocr2.operations import (
    AwaitPages,
    CloseSequence,
    FeedToken,
    GroupNeverFits,
    HandOver,
    NoRoom,
    OpenSequence,
    ReleasePages,
    Request,
    SequenceLost,
)
from ocr2_core.ocr2.page_decoder import Boundary, PageDecoder

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BatchReport:
    """Where the time went, and how much memory was held at most, since the batch was made.

    `choose_s`: choosing tokens, guards and settling, on the CPU. `waits`: how often a sequence found no room.
    """

    prefill_s: float = 0.0
    step_s: float = 0.0
    choose_s: float = 0.0
    step_count: int = 0
    token_count: int = 0
    sequence_count: int = 0
    hand_over_count: int = 0
    waits: int = 0
    peak_running: int = 0
    peak_kv_bytes: int = 0
    peak_index_bytes: int = 0
    pool_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _OpenSequence:
    number: int
    prompt_token_count: int
    held_bytes: int


@dataclass(slots=True)
class _Reader:
    """A document being read, with the request it waits on and its open sequences: the last one gets the tokens."""

    document: DocumentDecoding
    requests: Requests
    request: Request | None = None
    open: list[_OpenSequence] = field(default_factory=list)
    error: Exception | None = None


class ContinuousBatch:
    """Add documents, call `run_once` until it says that nothing can be done, take results from the documents."""

    def __init__(
        self,
        decoder: PageDecoder,
        *,
        max_concurrency: int = 16,
        kv_cache_watermark: float = 0.8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_concurrency < 1:
            raise EngineError(f"max_concurrency must be at least 1, not {max_concurrency}.")
        if not 0 < kv_cache_watermark <= 1:
            raise EngineError(f"kv_cache_watermark must be over 0 and at most 1, not {kv_cache_watermark}.")
        self._decoder = decoder
        self._max_concurrency = max_concurrency
        self._watermark = kv_cache_watermark
        self._clock = clock
        self._waiting: deque[_Reader] = deque()
        self._reading: list[_Reader] = []
        self._done: dict[int, _Reader] = {}
        self.report = BatchReport(pool_bytes=decoder.usage().pool_bytes)

    def add(self, document: DocumentDecoding) -> None:
        self._waiting.append(_Reader(document, document.requests()))

    def remove(self, document: DocumentDecoding) -> None:
        """Stop reading a document and give its sequence back; does nothing where it is not being read."""
        for reader in [*self._waiting, *self._reading]:
            if reader.document is document:
                reader.requests.close()
                self._close_all(reader)
        self._waiting = deque(reader for reader in self._waiting if reader.document is not document)
        self._reading = [reader for reader in self._reading if reader.document is not document]
        self._done.pop(id(document), None)

    def is_done(self, document: DocumentDecoding) -> bool:
        """Whether the document was read to its end. Raises the error that ended it, if one did."""
        reader = self._done.get(id(document))
        if reader is not None and reader.error is not None:
            raise reader.error
        return reader is not None

    def run_once(self) -> bool:
        """Admit, open and hand over what there is room for, then one step of all running sequences.

        False when nothing moved: every document waits for pages, or there are none.
        """
        moved = self._admit()
        for reader in list(self._reading):
            if isinstance(reader.request, AwaitPages) and reader.document.has_group():
                self._answer(reader, None)
                moved = True
        moved = self._make_room_moves() or moved
        return self._step() or moved

    def _admit(self) -> bool:
        moved = False
        while self._waiting and len(self._reading) < self._max_concurrency:
            reader = self._waiting.popleft()
            self._reading.append(reader)
            self._answer(reader, None)
            moved = True
        return moved

    def _make_room_moves(self) -> bool:
        """Hand over and open, in the order of admission. The first that finds no room makes those behind it wait."""
        moved, is_blocked = False, False
        for reader in list(self._reading):
            if isinstance(reader.request, HandOver):
                self._hand_over(reader, reader.request)
                moved = True
        for reader in list(self._reading):
            while isinstance(reader.request, OpenSequence) and not is_blocked:
                if self._open(reader, reader.request):
                    moved = True
                else:
                    is_blocked = True
                    self.report.waits += 1
        return moved

    def _fits(self, needed_bytes: int, freed_bytes: int = 0) -> bool:
        """Whether there is room under the watermark. With nothing else open, the pool itself has the last word."""
        used = self._decoder.usage().kv_bytes - freed_bytes
        return used == 0 or used + needed_bytes <= self._watermark * self.report.pool_bytes

    def _open(self, reader: _Reader, request: OpenSequence) -> bool:
        counts = [page.token_count for page in request.pages]
        needed = self._decoder.sequence_bytes(counts, len(request.prompt_token_ids))
        if not reader.open and not self._fits(needed):
            return False
        start = self._clock()
        try:
            number, logits = self._decoder.open_sequence(request.pages, request.prompt_token_ids)
        except PoolExhausted:
            if reader.open:
                self._throw(reader, NoRoom("the pool is used up"))
                return True
            if any(other.open for other in self._reading):
                return False
            self._throw(reader, self._never_fits(len(request.pages), needed))
            return True
        except Exception as error:
            logger.exception("%s: a sequence could not be opened", reader.document.name)
            self._throw(reader, SequenceLost(f"{type(error).__name__}: {error}"))
            return True
        reader.open.append(_OpenSequence(number, len(request.prompt_token_ids), needed))
        self.report.sequence_count += 1
        self._after_prefill(start)
        self._answer(reader, logits)
        return True

    def _hand_over(self, reader: _Reader, request: HandOver) -> None:
        sequence = reader.open[-1]
        kept = len(request.kept_page_indexes) if request.boundary is Boundary.CARRY else 0
        counts = [page.token_count for page in request.new_pages]
        # pages of one group are of one size
        needed = self._decoder.sequence_bytes([*counts[:1] * kept, *counts], sequence.prompt_token_count)
        if needed > sequence.held_bytes and not self._fits(needed, sequence.held_bytes):
            self._close(reader)
            self._throw(reader, NoRoom("the next page group is larger"))
            return
        start = self._clock()
        try:
            logits = self._decoder.hand_over(
                sequence.number, request.kept_page_indexes, request.new_pages, request.boundary
            )
        except PoolExhausted:
            self._close(reader)
            self._throw(reader, NoRoom("the pool is used up"))
            return
        except Exception as error:
            logger.exception("%s: a hand-over failed", reader.document.name)
            self._close(reader)
            self._throw(reader, SequenceLost(f"{type(error).__name__}: {error}"))
            return
        reader.open[-1] = replace(sequence, held_bytes=needed)
        self.report.hand_over_count += 1
        self._after_prefill(start)
        self._answer(reader, logits)

    def _never_fits(self, page_count: int, needed_bytes: int) -> GroupNeverFits:
        return GroupNeverFits(
            f"A group of {page_count} pages needs {needed_bytes / 1e9:.2f} GB of KV cache, the pool has "
            f"{self.report.pool_bytes / 1e9:.2f} GB. Set a smaller page_chunk_size or give the pool more memory."
        )

    def _step(self) -> bool:
        running: dict[int, tuple[_Reader, FeedToken]] = {}
        for reader in self._reading:
            if isinstance(reader.request, FeedToken):
                running[reader.open[-1].number] = (reader, reader.request)
        if not running:
            return False
        start = self._clock()
        try:
            for sequence, (_, request) in running.items():
                if request.current_page_index is not None:
                    self._decoder.set_current_page(sequence, request.current_page_index)
                self._release(sequence, request.released_page_indexes)
            answers = self._decoder.step({sequence: request.token_id for sequence, (_, request) in running.items()})
        except Exception as error:
            # the state of every sequence in a step that failed is unknown: each document reads its pages again
            logger.exception("a decode step of %d sequences failed", len(running))
            for reader, _ in running.values():
                self._close(reader)
                self._throw(reader, SequenceLost(f"{type(error).__name__}: {error}"))
            return True
        after = self._clock()
        report = self.report
        report.step_s += after - start
        report.step_count += 1
        report.token_count += len(running)
        report.peak_running = max(report.peak_running, len(running))
        for sequence, (reader, _) in running.items():
            self._answer(reader, answers[sequence])
        report.choose_s += self._clock() - after
        return True

    def _answer(self, reader: _Reader, answer: Any) -> None:
        self._resume(reader, lambda: reader.requests.send(answer))

    def _throw(self, reader: _Reader, error: Exception) -> None:
        self._resume(reader, lambda: reader.requests.throw(error))

    def _resume(self, reader: _Reader, resume: Callable[[], Request]) -> None:
        try:
            reader.request = resume()
            while isinstance(reader.request, CloseSequence | ReleasePages):
                if isinstance(reader.request, CloseSequence):
                    self._close(reader)
                else:
                    self._release(reader.open[-1].number, reader.request.page_indexes)
                reader.request = reader.requests.send(None)
        except StopIteration:
            self._finish(reader, None)
        except Exception as error:
            if not isinstance(error, EngineError):
                logger.exception("%s could not be read", reader.document.name)
            self._finish(reader, error)

    def _finish(self, reader: _Reader, error: Exception | None) -> None:
        self._close_all(reader)
        reader.request = None
        reader.error = error
        self._reading = [other for other in self._reading if other is not reader]
        self._done[id(reader.document)] = reader

    def _release(self, sequence: int, page_indexes: tuple[int, ...]) -> None:
        for page_index in page_indexes:
            self._decoder.release_page(sequence, page_index)

    def _close(self, reader: _Reader) -> None:
        self._decoder.close_sequence(reader.open.pop().number)

    def _close_all(self, reader: _Reader) -> None:
        while reader.open:
            self._close(reader)

    def _after_prefill(self, start: float) -> None:
        usage = self._decoder.usage()
        self.report.prefill_s += self._clock() - start
        self.report.peak_kv_bytes = max(self.report.peak_kv_bytes, usage.kv_bytes)
        self.report.peak_index_bytes = max(self.report.peak_index_bytes, usage.index_bytes)
