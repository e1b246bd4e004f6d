"""The CPU engine: RapidOCR's PP-OCRv6 models for text, rapid-layout's for regions, our own grouping into blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ocr2_core.blocks import PageBlocks
from ocr2_core.engine import PageImage
from ocr2_core.errors import EngineError
from ocr2_core.layout_detection import LayoutRegion
from ocr2_core.ledger import LedgerRow, PageResult
from ocr2_core.model_runtime import DEFAULT_CACHE_DIR, release_free_memory, usable_cpu_count
from ocr2_core.page_reading import assemble, read_each

if TYPE_CHECKING:
    from ocr2_core.layout_detection import LayoutDetector
    from ocr2_core.printed_lines import LineReader

CODE_VERSION = 3
TEXT_LAYER_ENGINE = "text_layer"


class RapidOcrEngine:
    """Reads page images; pages that bring the lines of a sound text layer are laid out only.

    `thread_count`: CPU threads (default: the CPUs this process may use, at most 8). `cache_dir`: where OpenVINO keeps
    compiled models, None for nowhere. `runtime`: `auto`, `openvino` or `onnxruntime`. `detection_side_px`: what the
    longer side of a page is scaled down to for finding lines.
    """

    name = "rapidocr"

    def __init__(
        self,
        *,
        thread_count: int | None = None,
        cache_dir: str | Path | None = DEFAULT_CACHE_DIR,
        runtime: str = "auto",
        detection_side_px: int = 1280,
    ) -> None:
        if thread_count is not None and thread_count < 1:
            raise EngineError(f"thread_count must be at least 1, not {thread_count}.")
        self._thread_count = thread_count or usable_cpu_count()
        self._cache_dir = None if cache_dir is None else Path(cache_dir).expanduser() / "openvino"
        self._runtime = runtime
        self._detection_side_px = detection_side_px
        self._line_reader: LineReader | None = None
        self._layout: LayoutDetector | None = None
        self._lock = threading.Lock()

    def identity(self) -> dict[str, str | int | float | bool]:
        """See Engine. The runtime and the CPU's number format are left out: they change a letter in ten thousand, and
        workers of different make must share their results.
        """
        from ocr2_core import layout_detection, text_detection, text_recognition
        from ocr2_core.model_runtime import file_digest

        return {
            "engine": self.name,
            "code_version": CODE_VERSION,
            "detection_model": file_digest(text_detection.model_path()),
            "recognition_model": file_digest(text_recognition.model_path()),
            "layout_model": file_digest(layout_detection.model_path()),
            "detection_side_px": self._detection_side_px,
        }

    def read_pages(self, pages: Iterable[PageImage]) -> Iterator[PageResult]:
        """See Engine. Models are loaded when the first page comes; a missing one raises EngineError then."""
        return read_each(self._with_models(pages), self.name, self._read)

    def _with_models(self, pages: Iterable[PageImage]) -> Iterator[PageImage]:
        for page in pages:
            self._load(with_text=page.text_lines is None)
            yield page
            release_free_memory()

    def _read(self, page: PageImage) -> tuple[PageBlocks, LedgerRow]:
        from ocr2_core.printed_lines import to_bgr

        regions: list[LayoutRegion] = []
        repaired = None
        assert self._layout is not None
        try:
            regions = self._layout(to_bgr(page.image))
        except Exception as error:
            repaired = f"layout detection failed ({error}); blocks come from the lines alone"
        if page.text_lines is not None:
            return assemble(page, page.text_lines, regions, TEXT_LAYER_ENGINE, repaired)
        assert self._line_reader is not None
        return assemble(page, self._line_reader(page.image), regions, self.name, repaired)

    def _load(self, *, with_text: bool) -> None:
        with self._lock:
            try:
                self._load_locked(with_text=with_text)
            except ImportError as error:
                raise EngineError(
                    f"The engine {self.name!r} cannot start: {error}. Install the `embedded` extra."
                ) from error

    def _load_locked(self, *, with_text: bool) -> None:
        from ocr2_core.layout_detection import LayoutDetector
        from ocr2_core.printed_lines import LineReader
        from ocr2_core.text_detection import TextDetector
        from ocr2_core.text_recognition import TextRecogniser

        threads, cache, runtime = self._thread_count, self._cache_dir, self._runtime
        if self._layout is None:
            self._layout = LayoutDetector(thread_count=threads, cache_dir=cache, runtime=runtime)
        if with_text and self._line_reader is None:
            self._line_reader = LineReader(
                TextDetector(
                    longest_side_px=self._detection_side_px, thread_count=threads, cache_dir=cache, runtime=runtime
                ),
                TextRecogniser(thread_count=threads, cache_dir=cache, runtime=runtime),
            )

    def close(self) -> None:
        self._line_reader = None
        self._layout = None
