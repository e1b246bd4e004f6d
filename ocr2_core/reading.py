"""The one loop that reads a document: every page comes out exactly once, in order, whatever happens to it."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ocr2_core.blocks import PageBlocks
from ocr2_core.engine import Engine, PageImage
from ocr2_core.errors import EngineError
from ocr2_core.ledger import LedgerRow, PageResult, PageStatus
from ocr2_core.limits import Limits
from ocr2_core.rendering import PageSource, RawPage, open_source
from ocr2_core.result_queue import ResultQueue
from ocr2_core.triage import FileInspection, inspect_file
from ocr2_core.upright import BlankPage, prepare

logger = logging.getLogger(__name__)

# Raise it with every change to rendering, turning or the text layer that can change what an engine is given.
PREPARATION_VERSION = 1

# what a page that was never rendered is taken to measure: A4, in points
_UNKNOWN_SIZE_PT = (595.28, 841.89)
# finished results that may wait while the engine looks ahead; then its input is ended so that it answers
_MAX_WAITING_RESULTS = 64
# an engine that cannot run fails this many pages in a row before the document is given up
_MAX_ENGINE_ERRORS = 3


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """`ocr`: `auto` reads pages with a sound text layer from that, `always` recognises all. `colour`: RGB pages."""

    ocr: Literal["auto", "always"] = "auto"
    limits: Limits = field(default_factory=Limits)
    colour: bool = False


def identity(options: ReadingOptions) -> dict[str, str | int | float | bool]:
    """What a reading depends on besides the engine; hashed into the stage fingerprint. Limits decide only whether."""
    return {
        "version": PREPARATION_VERSION,
        "ocr": options.ocr,
        "dpi": options.limits.dpi,
        "colour": options.colour,
    }


def read_document(
    path: Path,
    engine: Engine,
    *,
    options: ReadingOptions | None = None,
    inspection: FileInspection | None = None,
    first_page_index: int = 0,
    text_layer_engine: Engine | None = None,
) -> Iterator[PageResult]:
    """Read a file from `first_page_index` on; yields exactly one result a page, in page order, as early as possible.

    Blank pages come as `blank` (engine `ink`) without blocks, pages that cannot be rendered or read as `failed` with
    their reason. Text layers are used only with a `text_layer_engine`. The engine may raise, leave pages out or answer
    for the wrong ones: that costs those pages and no others. Memory does not grow with the page count.

    Raises SourceRefused for a file that cannot be read at all, and EngineError when the engine cannot run: at its
    first page, or on several pages one after another.
    """
    options = options or ReadingOptions()
    inspection = inspection or inspect_file(path, options.limits)
    with_text_layer = options.ocr == "auto" and text_layer_engine is not None
    with open_source(
        path, options.limits, inspection, colour=options.colour, with_text_layer=with_text_layer
    ) as source:
        yield from _Reading(source, engine, text_layer_engine).results(first_page_index)


class _Reading:
    """One document being read.

    Pages that need the engine are fed to it in runs: a run is one call of `read_pages`. Its input ends at the end of
    the file, when many finished results wait for the engine, or when the engine breaks; reading goes on with a new run.
    """

    def __init__(self, source: PageSource, engine: Engine, text_layer_engine: Engine | None) -> None:
        self._source = source
        self._engine = engine
        self._text_layer_engine = text_layer_engine
        self._raw_pages: Iterator[RawPage] = iter(())
        self._queue = ResultQueue()
        self._engine_has_read = False
        self._engine_errors = 0

    def results(self, first_page_index: int) -> Iterator[PageResult]:
        self._raw_pages = self._source.pages(range(first_page_index, self._source.inspection.page_count))
        while (raw_page := next(self._raw_pages, None)) is not None:
            page = self._route(raw_page)
            if page is not None:
                yield from self._run(page)
            yield from self._queue.ready()

    def _route(self, raw_page: RawPage) -> PageImage | None:
        """Queue the page; its result at once where the engine is not needed (None), else the page for the engine."""
        self._queue.expect(raw_page.page_index)
        routed = _without_engine(raw_page, self._text_layer_engine)
        if isinstance(routed, PageImage):
            return routed
        self._queue.put(routed)
        return None

    def _run(self, first: PageImage) -> Iterator[PageResult]:
        """Let the engine read from `first` on; yields results as they come, the engine's and those between them."""
        feed = _PageFeed(first, lambda: next(self._raw_pages, None), self._route, self._queue)
        trouble: Exception | None = None
        try:
            for answer in self._engine.read_pages(feed):
                if not self._queue.put(answer):
                    page_number = answer.page.page_index + 1
                    logger.error("%s answered for page %d, which it was not asked for", self._engine.name, page_number)
                    continue
                self._engine_has_read = True
                self._engine_errors = 0
                yield from self._queue.ready()
        except Exception as error:
            trouble = error
        finally:
            feed.close()
        if feed.source_error is not None:
            yield from self._queue.ready()
            raise feed.source_error
        if trouble is not None:
            self._after_trouble(trouble)
        else:
            for page_index in self._queue.unanswered():
                self._fail(page_index, "the engine gave no result for this page")

    def _after_trouble(self, trouble: Exception) -> None:
        """Fail the page the engine broke on; the others it had taken by then are rendered and read again."""
        if isinstance(trouble, EngineError):
            self._engine_errors += 1
            if not self._engine_has_read or self._engine_errors >= _MAX_ENGINE_ERRORS:
                raise trouble
        logger.error("%s broke in the middle of the document", self._engine.name, exc_info=trouble)
        unanswered = self._queue.unanswered()
        if unanswered:
            self._fail(unanswered[0], f"the engine broke on this page ({_in_words(trouble)})")
            self._raw_pages = itertools.chain(self._source.pages(unanswered[1:]), self._raw_pages)

    def _fail(self, page_index: int, reason: str) -> None:
        page_label = self._source.inspection.page_label(page_index)
        self._queue.put(_failed(page_index, self._engine.name, reason, page_label=page_label))


class _PageFeed:
    """The engine's input. It may be read from a thread of the engine's own, but by one thread at a time."""

    def __init__(
        self,
        first: PageImage,
        next_raw_page: Callable[[], RawPage | None],
        route: Callable[[RawPage], PageImage | None],
        queue: ResultQueue,
    ) -> None:
        self.source_error: Exception | None = None
        self._first: PageImage | None = first
        self._next_raw_page = next_raw_page
        self._route = route
        self._queue = queue
        self._lock = threading.Lock()
        self._is_closed = False

    def __iter__(self) -> Iterator[PageImage]:
        return self

    def __next__(self) -> PageImage:
        with self._lock:
            if self._first is not None and not self._is_closed:
                first, self._first = self._first, None
                return first
            while not self._is_closed and self._queue.waiting_count < _MAX_WAITING_RESULTS:
                try:
                    raw_page = self._next_raw_page()
                except Exception as error:
                    # the engine is not to blame, and must not be asked to handle it
                    self.source_error = error
                    break
                if raw_page is None:
                    break
                page = self._route(raw_page)
                if page is not None:
                    return page
            self._is_closed = True
            raise StopIteration

    def close(self) -> None:
        """Give out no more pages; waits for one that is just being taken."""
        with self._lock:
            self._is_closed = True


def _without_engine(raw_page: RawPage, text_layer_engine: Engine | None) -> PageResult | PageImage:
    """The result of a page that failed, is blank or has a sound text layer; else the page, ready for the engine."""
    start = time.perf_counter()
    page_index, page_label = raw_page.page_index, raw_page.page_label
    if raw_page.failure is not None:
        return _failed(page_index, "render", raw_page.failure.reason, page_label=page_label)
    try:
        page = prepare(raw_page)
        if isinstance(page, PageImage) and page.text_lines is not None and text_layer_engine is not None:
            result = _read_text_layer(page, text_layer_engine)
            if result is not None:
                return result
            page = prepare(replace(raw_page, text_lines=None))
    except Exception as error:
        logger.exception("page %d could not be prepared", page_index + 1)
        return _failed(page_index, "ink", f"preparing the page failed ({_in_words(error)})", page_label=page_label)
    duration_s = raw_page.duration_s + time.perf_counter() - start
    if isinstance(page, BlankPage):
        return _blank(page, raw_page.warnings, duration_s)
    if raw_page.text_layer_refusal is not None:
        logger.debug("page %d is read by OCR: %s", page_index + 1, raw_page.text_layer_refusal)
    return page


def _read_text_layer(page: PageImage, engine: Engine) -> PageResult | None:
    """The page read from its text layer, or None when that did not work and the page needs OCR."""
    try:
        results = list(engine.read_pages([page]))
    except Exception:
        logger.exception("the text layer of page %d could not be read; using OCR", page.page_index + 1)
        return None
    if len(results) != 1 or results[0].page.page_index != page.page_index:
        logger.error("%s gave no result for page %d; using OCR", engine.name, page.page_index + 1)
        return None
    if results[0].ledger.status is PageStatus.FAILED:
        logger.warning("page %d: %s; using OCR", page.page_index + 1, results[0].ledger.reason)
        return None
    return results[0]


def _blank(page: BlankPage, warnings: str | None, duration_s: float) -> PageResult:
    if warnings is not None:
        # nothing was drawn, and not because there was nothing to draw
        reason = f"the page came out empty because its content is damaged ({warnings.splitlines()[0]})"
        return _failed(page.page_index, "render", reason, duration_s, page.page_label, (page.width_pt, page.height_pt))
    blocks = PageBlocks(
        page_index=page.page_index, width_pt=page.width_pt, height_pt=page.height_pt, page_label=page.page_label
    )
    row = LedgerRow(page_index=page.page_index, status=PageStatus.BLANK, engine="ink", duration_s=duration_s)
    return PageResult(page=blocks, ledger=row)


def _failed(
    page_index: int,
    engine_name: str,
    reason: str,
    duration_s: float = 0.0,
    page_label: str | None = None,
    size_pt: tuple[float, float] = _UNKNOWN_SIZE_PT,
) -> PageResult:
    blocks = PageBlocks(page_index=page_index, width_pt=size_pt[0], height_pt=size_pt[1], page_label=page_label)
    row = LedgerRow(
        page_index=page_index, status=PageStatus.FAILED, engine=engine_name, duration_s=duration_s, reason=reason
    )
    return PageResult(page=blocks, ledger=row)


def _in_words(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
