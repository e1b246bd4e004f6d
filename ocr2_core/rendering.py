"""Pages of a file as pixels, one after another, rendered in a child process that may die without harm.

Rendering runs one page ahead of the reader: the child works on the next page while the parent reads this one, then
waits at the pipe. Memory is therefore the same for 8 pages and for 5,000.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr2_core.blocks import TextLine
from ocr2_core.limits import Limits
from ocr2_core.triage import FileInspection, inspect_file, raise_if_refused
from ocr2_core.worker_process import WorkerDied, WorkerProcess, WorkerTimedOut

logger = logging.getLogger(__name__)

_CRASHES_A_PAGE_MAY_CAUSE = 2


@dataclass(frozen=True, slots=True)
class PageFailure:
    """Why a page has no pixels. `code`: damaged, pixel_bomb, out_of_memory, timed_out or crashed."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class RawPage:
    """A page as stored in its file, not yet turned upright; exactly one of `image` and `failure` is given.

    `image` is uint8, (height_px, width_px) gray or (height_px, width_px, 3) RGB. `text_lines` holds the lines of a
    sound text layer, `text_layer_refusal` says why there is none. `rotation_degrees` is the clockwise turn already
    applied because the text layer runs sideways. `warnings` is what the parser complained about on this page.
    """

    page_index: int
    image: NDArray[np.uint8] | None = None
    dpi: float = 0.0
    page_label: str | None = None
    rotation_degrees: int = 0
    text_lines: tuple[TextLine, ...] | None = None
    text_layer_refusal: str | None = None
    warnings: str | None = None
    failure: PageFailure | None = None
    duration_s: float = 0.0


class PageSource:
    """The pages of one inspected file. A context manager: leaving it ends its child processes."""

    def __init__(
        self,
        path: Path,
        limits: Limits,
        inspection: FileInspection,
        *,
        colour: bool = False,
        with_text_layer: bool = False,
    ) -> None:
        self.inspection = inspection
        self._limits = limits
        self._workers: set[WorkerProcess] = set()
        self._request: dict[str, Any] = {
            "job": "render",
            "path": str(path.resolve()),
            "media_type": inspection.media_type,
            "limits": limits.model_dump(),
            "colour": colour,
            "with_text_layer": with_text_layer,
        }

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the child processes now at work."""
        return [worker.pid for worker in self._workers]

    def pages(self, page_indices: Iterable[int] | None = None) -> Iterator[RawPage]:
        """The pages asked for (all by default), in the order asked, one RawPage each.

        A page that cannot be rendered comes as a RawPage with its failure; a child that dies, hangs or runs out of
        memory costs at most that page. Raises SourceRefused when the file cannot be opened any more.
        """
        waiting = list(range(self.inspection.page_count) if page_indices is None else page_indices)
        for page_index in waiting:
            if not 0 <= page_index < self.inspection.page_count:
                raise IndexError(f"page_index {page_index} of a file with {self.inspection.page_count} pages")
        crashes = 0
        position = 0
        while position < len(waiting):
            worker = self._start(waiting[position:])
            try:
                while position < len(waiting):
                    page = self._receive(worker, waiting[position])
                    position, crashes = position + 1, 0
                    yield page
            except WorkerTimedOut:
                limit_s = self._limits.render_timeout_s
                yield self._failed(waiting[position], "timed_out", f"rendering took longer than {limit_s:g} s")
                position, crashes = position + 1, 0
            except WorkerDied as death:
                crashes += 1
                logger.warning("the renderer died on page %d: %s", waiting[position] + 1, death)
                # once may be an accident (the kernel short of memory, an operator), twice is the page
                if crashes >= _CRASHES_A_PAGE_MAY_CAUSE:
                    yield self._failed(waiting[position], "crashed", f"the renderer crashed on this page ({death})")
                    position, crashes = position + 1, 0
            finally:
                self._workers.discard(worker)
                worker.close()

    def _start(self, page_indices: list[int]) -> WorkerProcess:
        worker = WorkerProcess(
            self._request | {"page_indices": page_indices}, max_payload_bytes=3 * self._limits.max_page_pixels * 2
        )
        self._workers.add(worker)
        return worker

    def _receive(self, worker: WorkerProcess, page_index: int) -> RawPage:
        header, payload = worker.read_message(self._limits.render_timeout_s)
        if "page_index" not in header:
            raise_if_refused(header)
            header, payload = worker.read_message(self._limits.render_timeout_s)
        if header["page_index"] != page_index:
            raise WorkerDied(f"it sent page {header['page_index'] + 1} instead of {page_index + 1}")
        if "failure" in header:
            return self._failed(page_index, header["failure"]["code"], header["failure"]["reason"])
        shape: tuple[int, ...] = (header["height_px"], header["width_px"])
        if header["channels"] == 3:
            shape = (*shape, 3)
        lines = header.get("text_lines")
        return RawPage(
            page_index=page_index,
            image=np.frombuffer(payload, dtype=np.uint8).reshape(shape),
            dpi=header["dpi"],
            page_label=self.inspection.page_label(page_index),
            rotation_degrees=header.get("rotation_degrees", 0),
            text_lines=None if lines is None else tuple(TextLine(**line) for line in lines),
            text_layer_refusal=header.get("text_layer_refusal"),
            warnings=header.get("warnings"),
            duration_s=header["duration_s"],
        )

    def _failed(self, page_index: int, code: str, reason: str) -> RawPage:
        return RawPage(
            page_index=page_index,
            page_label=self.inspection.page_label(page_index),
            failure=PageFailure(code, reason),
        )

    def close(self) -> None:
        """End the child processes; iterators over `pages` must not be used afterwards."""
        while self._workers:
            self._workers.pop().close()

    def __enter__(self) -> PageSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_source(
    path: Path,
    limits: Limits | None = None,
    inspection: FileInspection | None = None,
    *,
    colour: bool = False,
    with_text_layer: bool = False,
) -> PageSource:
    """Open a file for reading its pages; it is inspected first unless that was done before.

    `colour` gives RGB instead of gray, `with_text_layer` the lines of sound text layers. Raises SourceRefused.
    """
    limits = limits or Limits()
    return PageSource(
        path,
        limits,
        inspection or inspect_file(path, limits),
        colour=colour,
        with_text_layer=with_text_layer,
    )
