"""The `served` engine: pages are read by a server that speaks OpenAI's API (vLLM or SGLang with Unlimited-OCR).

Pages go out in groups, several groups at a time, and come back in order. An answer for a group is taken only when its
page markers account for every page of the group, none is empty and none repeats its neighbour; otherwise each page is
asked for alone, at the higher resolution that single pages get. So one bad page costs its neighbours time, not text.
"""

from __future__ import annotations

import io
import itertools
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ocr2_core.engine import PageImage
from ocr2_core.errors import EngineError, EngineUnavailable
from ocr2_core.ledger import LedgerRow, PageResult, PageStatus
from ocr2_core.ocr2.markup import PageSplitter, parse_page
from ocr2_core.page_reading import empty_page
from ocr2_core.served_client import ServedClient
from ocr2_core.served_request import NGRAM_SIZE, Answer, RequestFailed, ServedModel, ServedOptions

logger = logging.getLogger(__name__)

CODE_VERSION = 1
# the square that base mode fits a page into: larger pages only make larger requests
GROUP_SIDE_PX = 1024
# the service is given up when this many pages in a row fail by its fault
MAX_SERVICE_FAILURES = 3
# pages with less text may well be equal (chapter title pages, forms)
MIN_REPEATED_CHARACTERS = 200


class ServedEngine:
    """Reads pages through `base_url` (its path usually `/v1`).

    `model`: the name the server knows it by. `pages_per_request`: pages in one request; 1 reads all pages alone, at the
    highest resolution and with the most requests. `max_concurrency`: requests at a time. The rest is ServedOptions'.
    """

    name = "served"

    def __init__(
        self,
        *,
        base_url: str,
        model: str = "baidu/Unlimited-OCR",
        api_key: str | None = None,
        pages_per_request: int = 8,
        max_concurrency: int = 4,
        timeout_s: float = 600.0,
        max_tries: int = 5,
        backoff_s: float = 1.0,
        max_tokens_per_page: int = 8192,
        sglang_logit_processor: str | None = None,
    ) -> None:
        counts = {"pages_per_request": pages_per_request, "max_concurrency": max_concurrency, "max_tries": max_tries}
        for name, value in {**counts, "max_tokens_per_page": max_tokens_per_page}.items():
            if value < 1:
                raise EngineError(f"{name} must be at least 1, not {value}.")
        self._options = ServedOptions(
            base_url=base_url,
            model=model,
            api_key=api_key,
            timeout_s=timeout_s,
            max_tries=max_tries,
            backoff_s=backoff_s,
            max_tokens_per_page=max_tokens_per_page,
            sglang_logit_processor=sglang_logit_processor,
        )
        self._pages_per_request = pages_per_request
        self._max_concurrency = max_concurrency

    def identity(self) -> dict[str, str | int | float | bool]:
        return {
            "engine": self.name,
            "code_version": CODE_VERSION,
            "model": self._options.model,
            "pages_per_request": self._pages_per_request,
            "max_tokens_per_page": self._options.max_tokens_per_page,
            "ngram_size": NGRAM_SIZE,
        }

    def read_pages(self, pages: Iterable[PageImage]) -> Iterator[PageResult]:
        """See Engine. Raises EngineUnavailable when the service fails on several pages in a row or on all of them."""
        client = ServedClient(self._options)
        executor = ThreadPoolExecutor(self._max_concurrency, thread_name_prefix="served")
        try:
            yield from _unless_service_fails(self._results(client, executor, pages), client)
        finally:
            # requests in flight end with the next piece of their answer; nobody waits for them
            client.stop()
            executor.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Nothing is held between documents."""

    def _results(
        self, client: ServedClient, executor: ThreadPoolExecutor, pages: Iterable[PageImage]
    ) -> Iterator[_Reading]:
        """Readings in page order; at most `max_concurrency` groups are in flight and one more is being collected."""
        in_flight: deque[Future[list[_Reading]]] = deque()
        reader: _GroupReader | None = None
        for group in _batched(pages, self._pages_per_request):
            reader = reader or _GroupReader(client, client.find_model())
            in_flight.append(executor.submit(reader.read, group))
            while len(in_flight) >= self._max_concurrency or (in_flight and in_flight[0].done()):
                yield from in_flight.popleft().result()
        while in_flight:
            yield from in_flight.popleft().result()


class _Reading(NamedTuple):
    """A page's result, and the service's failure if that is why it failed."""

    result: PageResult
    failure: RequestFailed | None = None


class _GroupReader:
    """Turns groups of pages into results; used by several threads."""

    def __init__(self, client: ServedClient, model: ServedModel) -> None:
        self._client = client
        self._model = model

    def read(self, group: list[PageImage]) -> list[_Reading]:
        if len(group) == 1:
            return [self._read_alone(group[0])]
        start = time.perf_counter()
        try:
            answer = self._client.read([_png(page, GROUP_SIDE_PX) for page in group], self._model)
        except RequestFailed as error:
            doubt: str | None = error.reason
        else:
            sections = split_at_markers(answer.text)
            doubt = _doubt(answer, sections, len(group))
            if not doubt:
                duration_s = (time.perf_counter() - start) / len(group)
                counts = _shares(answer.token_count, sections)
                return [
                    _read_section(page, section, count, duration_s)
                    for page, section, count in zip(group, sections, counts, strict=True)
                ]
        first, last = group[0].page_index + 1, group[-1].page_index + 1
        logger.warning("pages %d to %d are read one by one: %s", first, last, doubt)
        repaired = f"read alone, for the answer for pages {first} to {last} could not be used: {doubt}"
        return [self._read_alone(page, repaired) for page in group]

    def _read_alone(self, page: PageImage, repaired: str | None = None) -> _Reading:
        start = time.perf_counter()
        try:
            answer = self._client.read([_png(page)], self._model)
        except RequestFailed as error:
            failure = error if error.is_service else None
            return _Reading(_failed(page, error.reason, time.perf_counter() - start), failure)
        duration_s = time.perf_counter() - start
        # asked for one page, the model may still set markers; all the text is this page's
        return _read_section(
            page, answer.text, answer.token_count, duration_s, repaired, is_truncated=answer.is_truncated
        )


def split_at_markers(text: str) -> list[str]:
    """The text of each page of a group's answer. Text before the first marker is a page of its own, unless empty."""
    splitter = PageSplitter()
    return [section.strip() for section in (*splitter.feed(text), *splitter.finish())]


def _doubt(answer: Answer, sections: list[str], page_count: int) -> str | None:
    """Why a group's answer must not be used, or None."""
    if answer.is_truncated:
        return f"it was cut off at the token limit after {answer.token_count} tokens"
    if len(sections) != page_count:
        return f"it has {len(sections)} pages for {page_count}"
    empty = [number for number, section in enumerate(sections, start=1) if not section]
    if empty:
        return f"page {empty[0]} of the group is empty"
    for number, (section, following) in enumerate(itertools.pairwise(sections), start=1):
        if section == following and len(section) >= MIN_REPEATED_CHARACTERS:
            return f"pages {number} and {number + 1} of the group have the same text"
    return None


def _read_section(
    page: PageImage,
    text: str,
    token_count: int,
    duration_s: float,
    repaired: str | None = None,
    *,
    is_truncated: bool = False,
) -> _Reading:
    parsed = parse_page(text)
    reasons = [*([repaired] if repaired else []), *parsed.notes]
    status = PageStatus.REPAIRED if reasons else PageStatus.OK
    if is_truncated:
        status, reasons = PageStatus.FAILED, [f"truncated: the answer was cut off after {token_count} tokens", *reasons]
    elif not parsed.blocks:
        status, reasons = PageStatus.FAILED, ["the answer holds nothing for a page that has ink", *reasons]
    row = LedgerRow(
        page_index=page.page_index,
        status=status,
        engine=ServedEngine.name,
        duration_s=duration_s,
        token_count=token_count,
        reason="; ".join(reasons) or None,
    )
    return _Reading(PageResult(page=empty_page(page, parsed.blocks), ledger=row))


def _failed(page: PageImage, reason: str, duration_s: float) -> PageResult:
    row = LedgerRow(
        page_index=page.page_index,
        status=PageStatus.FAILED,
        engine=ServedEngine.name,
        duration_s=duration_s,
        reason=reason,
    )
    return PageResult(page=empty_page(page), ledger=row)


def _unless_service_fails(readings: Iterable[_Reading], client: ServedClient) -> Iterator[PageResult]:
    """Pass results on, but hold those back that the service failed on, until a page after them succeeds.

    Raises EngineUnavailable when MAX_SERVICE_FAILURES come in a row, or when they are all there is.
    """
    held: list[PageResult] = []
    has_read = False
    for result, failure in readings:
        if failure is not None:
            held.append(result)
            if len(held) >= MAX_SERVICE_FAILURES:
                raise EngineUnavailable(client.complaint(f"{len(held)} pages in a row failed; {failure.reason}"))
            continue
        has_read = has_read or result.ledger.status is not PageStatus.FAILED
        yield from held
        held.clear()
        yield result
    if held and not has_read:
        raise EngineUnavailable(client.complaint(f"no page could be read; {held[0].ledger.reason}"))
    yield from held


def _png(page: PageImage, max_side_px: int | None = None) -> bytes:
    """The page as PNG, scaled down to `max_side_px` (bicubic, as the server would)."""
    from PIL import Image

    image = Image.fromarray(page.image)
    longer = max(image.size)
    if max_side_px is not None and longer > max_side_px:
        scale = max_side_px / longer
        size = (max(round(image.width * scale), 1), max(round(image.height * scale), 1))
        image = image.resize(size, Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _shares(token_count: int, sections: list[str]) -> list[int]:
    """The group's tokens shared out by text length; their sum is kept."""
    total = sum(len(section) for section in sections) or 1
    ends = [round(token_count * sum(len(s) for s in sections[:end]) / total) for end in range(len(sections) + 1)]
    return [end - start for start, end in itertools.pairwise(ends)]


def _batched(pages: Iterable[PageImage], size: int) -> Iterator[list[PageImage]]:
    iterator = iter(pages)
    while group := list(itertools.islice(iterator, size)):
        yield group
