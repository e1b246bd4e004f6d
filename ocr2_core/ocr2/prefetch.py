"""Takes pages from their source and encodes them in a thread of its own, a bounded number ahead of decoding."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr2_core.blocks import PageBlocks
from ocr2_core.engine import PageImage
from ocr2_core.ocr2.page_decoder import EncodedPage
from ocr2_core.page_reading import empty_page


class StoredImage:
    """A page's image kept for reading the page again: as PNG, a tenth of its pixels' size for a scanned text page."""

    def __init__(self, page: PageImage) -> None:
        self._page_index = page.page_index
        self._dpi = page.dpi
        is_encoded, data = cv2.imencode(".png", page.image, [cv2.IMWRITE_PNG_COMPRESSION, 1])
        if not is_encoded:
            raise ValueError(f"an image of {page.image.shape} cannot be stored")
        self._data: NDArray[np.uint8] = np.asarray(data, np.uint8)

    def restore(self) -> PageImage:
        image = np.asarray(cv2.imdecode(self._data, cv2.IMREAD_UNCHANGED), np.uint8)
        return PageImage(page_index=self._page_index, image=image, dpi=self._dpi)


@dataclass(frozen=True, slots=True)
class PreparedPage:
    """`frame`: the page's size and turn, without blocks. `encoded` and `image` (for a second reading), or `error`."""

    frame: PageBlocks
    encoded: EncodedPage | None = None
    image: StoredImage | None = None
    error: Exception | None = None


class Prefetch:
    """Starts at once; iterate over `next_page`, and `close` it in any case.

    The source is read by this thread only. What the source raises comes out of `next_page` behind the pages before it.
    """

    def __init__(
        self, pages: Iterator[PageImage], encode: Callable[[PageImage], EncodedPage], *, ahead_pages: int
    ) -> None:
        self._pages = pages
        self._encode = encode
        self._queue: queue.Queue[PreparedPage | BaseException | None] = queue.Queue(max(1, ahead_pages))
        self._is_closed = threading.Event()
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, name="ocr2-prefetch", daemon=True)
        self._thread.start()

    def next_page(self, *, timeout_s: float) -> PreparedPage | None:
        """The next page; None where none is ready in time, or `has_ended`. Raises what the source raised."""
        if self.has_ended:
            return None
        try:
            item = self._queue.get(timeout=timeout_s) if timeout_s > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None
        if isinstance(item, PreparedPage):
            return item
        self.has_ended = True
        if item is not None:
            raise item
        return None

    def close(self) -> None:
        """Stop; waits for the page that is being encoded."""
        self._is_closed.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(0.05)

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            for page in self._pages:
                if self._is_closed.is_set() or not self._put(self._prepare(page)):
                    return
        except BaseException as error:
            # handed to the reader, who knows what it costs
            end = error
        self._put(end)

    def _prepare(self, page: PageImage) -> PreparedPage:
        frame = empty_page(page)
        try:
            return PreparedPage(frame, self._encode(page), StoredImage(page))
        except Exception as error:
            return PreparedPage(frame, error=error)

    def _put(self, item: PreparedPage | BaseException | None) -> bool:
        while not self._is_closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
