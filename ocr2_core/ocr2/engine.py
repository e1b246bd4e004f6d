"""The `ocr2` engine: pages read by an Unlimited-OCR checkpoint with infinite decoding."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ocr2_core.blocks import PageBlocks
from ocr2_core.engine import PageImage
from ocr2_core.errors import EngineError
from ocr2_core.ledger import LedgerRow, PageResult, PageStatus
from ocr2_core.ocr2.batching import BatchReport, ContinuousBatch
from ocr2_core.ocr2.fair_lock import FairLock
from ocr2_core.ocr2.guards import GuardSettings
from ocr2_core.ocr2.infinite_decoding import DecodingSettings, DocumentDecoding
from ocr2_core.ocr2.markup import parse_page
from ocr2_core.ocr2.operations import PageReading, SourcePage
from ocr2_core.ocr2.page_decoder import Boundary, EncodedPage
from ocr2_core.ocr2.page_groups import Grouping
from ocr2_core.ocr2.page_model import CheckpointPageModel, ModelOptions, PageModel, check_model_path, checkpoint_digest
from ocr2_core.ocr2.prefetch import Prefetch, PreparedPage, StoredImage
from ocr2_core.result_queue import ResultQueue

logger = logging.getLogger(__name__)

CODE_VERSION = 1
_WAIT_S = 0.1


class Ocr2Engine:
    """Several threads may call `read_pages` at once: their documents decode together in one batch.

    `model_path`: the folder of a checkpoint in transformers' `unlimited_ocr` format, or a hub id (with `revision`);
    `model_sha256`: digests of its weight files, by name, to be checked.
    `preset` (`v1-safe`, `paper`) sets the page groups, `page_chunk_size` and `chunk_overlap` change them. `boundary`:
    `restart`, `carry` or `recompute` (see Boundary). `kv_cache_watermark`: share of the KV pool that new work may
    fill. `max_concurrency`: documents that decode together. `timeout_seconds`: longest time for one document.
    `load_model` makes the model; tests give their own.
    """

    name = "ocr2"

    def __init__(
        self,
        *,
        model_path: str | Path | None = None,
        revision: str | None = None,
        model_sha256: Mapping[str, str] | None = None,
        preset: str = "v1-safe",
        page_chunk_size: int | None = None,
        chunk_overlap: int | None = None,
        boundary: str = "restart",
        kv_cache_watermark: float = 0.8,
        max_concurrency: int = 16,
        timeout_seconds: float | None = None,
        max_page_tokens: int = 8192,
        device: str = "auto",
        dtype: str = "auto",
        kv_cache_bytes: int | None = None,
        thread_count: int | None = None,
        load_model: Callable[[ModelOptions], PageModel] = CheckpointPageModel.load,
    ) -> None:
        self._model_path = check_model_path(model_path)
        self._settings = DecodingSettings(
            Grouping.of_preset(preset, page_chunk_size, chunk_overlap),
            _checked_boundary(boundary),
            _checked_guards(max_page_tokens),
            timeout_seconds,
        )
        if timeout_seconds is not None and timeout_seconds <= 0:
            raise EngineError(f"timeout_seconds must be over 0, not {timeout_seconds}.")
        if max_concurrency < 1 or not 0 < kv_cache_watermark <= 1:
            raise EngineError("max_concurrency must be at least 1, kv_cache_watermark over 0 and at most 1.")
        self._watermark = kv_cache_watermark
        self._max_concurrency = max_concurrency
        self._thread_count = thread_count
        size = self._settings.grouping.page_chunk_size
        self._model_options = ModelOptions(
            self._model_path,
            revision,
            model_sha256,
            device,
            dtype,
            pool_pages=round(size * max_concurrency / kv_cache_watermark),
            least_pool_pages=size + 2,
            kv_cache_bytes=kv_cache_bytes,
        )
        self._load_model = load_model
        self._model: PageModel | None = None
        self._batch: ContinuousBatch | None = None
        self._lock = FairLock()

    def identity(self) -> dict[str, str | int | float | bool]:
        """See Engine. No model is loaded; a local checkpoint is told by its files, a hub id by its revision."""
        grouping, guards = self._settings.grouping, self._settings.guards
        digest = checkpoint_digest(self._model_path)
        return {
            "engine": self.name,
            "code_version": CODE_VERSION,
            "model": digest or self._model_path,
            "revision": "" if digest else self._model_options.revision or "main",
            "dtype": self._model_options.dtype,
            "page_chunk_size": grouping.page_chunk_size,
            "chunk_overlap": grouping.chunk_overlap,
            "boundary": self._settings.boundary.value,
            "max_page_tokens": guards.max_page_tokens,
            "ngram_size": guards.ngram_size,
            "ngram_window_tokens": guards.ngram_window_tokens,
        }

    @property
    def report(self) -> BatchReport | None:
        """Stage timings and memory peaks since the model was loaded."""
        return None if self._batch is None else self._batch.report

    def resume_page_index(self, page_index: int) -> int:
        """See GroupedEngine."""
        return self._settings.grouping.resume_page_index(page_index)

    def read_pages(self, pages: Iterable[PageImage]) -> Iterator[PageResult]:
        """See Engine. The model is loaded when the first page comes; a missing one raises EngineError then."""
        source = iter(pages)
        first = next(source, None)
        if first is None:
            return
        model, batch = self._loaded()
        decoding = DocumentDecoding(
            model.vocabulary, self._settings, name=f"document from page {first.page_index + 1} on"
        )
        ahead_pages = min(self._settings.grouping.page_chunk_size, 16)
        prefetch = Prefetch(itertools.chain([first], source), model.encode, ahead_pages=ahead_pages)
        with self._lock:
            batch.add(decoding)
        try:
            yield from _Reading(self.name, model, decoding, prefetch, batch, self._lock).results()
        finally:
            with self._lock:
                batch.remove(decoding)
            prefetch.close()

    def close(self) -> None:
        with self._lock:
            self._model = None
            self._batch = None

    def _loaded(self) -> tuple[PageModel, ContinuousBatch]:
        with self._lock:
            if self._model is None or self._batch is None:
                if self._thread_count is not None:
                    _set_thread_count(self._thread_count)
                self._model = self._load_model(self._model_options)
                self._batch = ContinuousBatch(
                    self._model.decoder, max_concurrency=self._max_concurrency, kv_cache_watermark=self._watermark
                )
            return self._model, self._batch


class _Reading:
    """One call of `read_pages`: feeds the document, drives the batch, and puts blocks together."""

    def __init__(
        self,
        engine: str,
        model: PageModel,
        decoding: DocumentDecoding,
        prefetch: Prefetch,
        batch: ContinuousBatch,
        lock: FairLock,
    ) -> None:
        self._engine = engine
        self._model = model
        self._decoding = decoding
        self._prefetch = prefetch
        self._batch = batch
        self._lock = lock
        self._queue = ResultQueue()
        self._frames: dict[int, PageBlocks] = {}
        self._source_error: BaseException | None = None
        self._has_ended = False

    def results(self) -> Iterator[PageResult]:
        is_done = has_moved = False
        while not is_done:
            self._feed(wait_s=0.0 if has_moved else _WAIT_S)
            yield from self._queue.ready()
            error: Exception | None = None
            with self._lock:
                # whoever waits for a document drives the batch, for all documents in it
                has_moved = self._batch.run_once()
                try:
                    is_done = self._batch.is_done(self._decoding)
                except Exception as ended_by:
                    error = ended_by
                readings = self._decoding.take_results()
            for reading in readings:
                self._queue.put(self._result(reading))
            yield from self._queue.ready()
            if error is not None:
                raise error if isinstance(error, EngineError) else EngineError(f"reading broke off: {error}") from error
        if self._source_error is not None:
            raise self._source_error

    def _feed(self, wait_s: float) -> None:
        """Take pages as far as the next group needs them."""
        while not self._has_ended and not self._has_group():
            try:
                prepared = self._prefetch.next_page(timeout_s=wait_s)
            except BaseException as error:
                # the pages before it are read to their end first
                self._source_error = error
                prepared = None
            if prepared is not None:
                self._take(prepared)
            elif self._prefetch.has_ended:
                self._has_ended = True
                with self._lock:
                    self._decoding.end()
            else:
                return

    def _has_group(self) -> bool:
        with self._lock:
            return self._decoding.has_group()

    def _take(self, prepared: PreparedPage) -> None:
        page_index = prepared.frame.page_index
        self._queue.expect(page_index)
        if prepared.encoded is None or prepared.image is None:
            reason = f"preparing the page failed ({type(prepared.error).__name__}: {prepared.error})"
            self._queue.put(PageResult(page=prepared.frame, ledger=self._row(page_index, PageStatus.FAILED, reason)))
            return
        self._frames[page_index] = prepared.frame
        page = SourcePage(page_index, prepared.encoded, self._alone_encoder(prepared.image))
        with self._lock:
            self._decoding.feed(page)

    def _alone_encoder(self, image: StoredImage) -> Callable[[], EncodedPage]:
        return lambda: self._model.encode_alone(image.restore())

    def _result(self, reading: PageReading) -> PageResult:
        parsed = parse_page(reading.text)
        reasons = [reading.reason] if reading.reason else []
        if reading.status is not PageStatus.FAILED:
            reasons.extend(parsed.notes)
            if not any(block.text for block in parsed.blocks):
                reasons.append("no text found")
        row = self._row(reading.page_index, reading.status, "; ".join(reasons) or None)
        row = row.model_copy(update={"token_count": reading.token_count, "duration_s": max(reading.duration_s, 0.0)})
        frame = self._frames.pop(reading.page_index)
        return PageResult(page=frame.model_copy(update={"blocks": parsed.blocks}), ledger=row)

    def _row(self, page_index: int, status: PageStatus, reason: str | None) -> LedgerRow:
        return LedgerRow(page_index=page_index, status=status, engine=self._engine, duration_s=0.0, reason=reason)


def _checked_boundary(boundary: str) -> Boundary:
    try:
        return Boundary(boundary)
    except ValueError:
        raise EngineError(f"Unknown boundary {boundary!r}. Boundaries: {', '.join(Boundary)}.") from None


def _checked_guards(max_page_tokens: int) -> GuardSettings:
    try:
        return GuardSettings(max_page_tokens=max_page_tokens)
    except ValueError as error:
        raise EngineError(str(error)) from None


def _set_thread_count(thread_count: int) -> None:
    import torch

    torch.set_num_threads(thread_count)
