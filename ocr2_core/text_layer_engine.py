"""The engine for born-digital PDFs: lines from the text layer, only the layout is found on the image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ocr2_core.engine import PageImage
from ocr2_core.ledger import LedgerRow, PageResult, PageStatus
from ocr2_core.model_runtime import DEFAULT_CACHE_DIR
from ocr2_core.page_reading import empty_page
from ocr2_core.rapidocr_engine import RapidOcrEngine


class TextLayerEngine:
    """Never recognises text: a page without a sound text layer fails and says so."""

    name = "text_layer"

    def __init__(
        self,
        *,
        thread_count: int | None = None,
        cache_dir: str | Path | None = DEFAULT_CACHE_DIR,
        runtime: str = "auto",
    ) -> None:
        self._engine = RapidOcrEngine(thread_count=thread_count, cache_dir=cache_dir, runtime=runtime)

    def identity(self) -> dict[str, str | int | float | bool]:
        shared = self._engine.identity()
        kept = ("code_version", "layout_model")
        return {"engine": self.name, **{key: shared[key] for key in kept}}

    def read_pages(self, pages: Iterable[PageImage]) -> Iterator[PageResult]:
        """See Engine."""
        for page in pages:
            if page.text_lines is not None:
                yield from self._engine.read_pages([page])
                continue
            row = LedgerRow(
                page_index=page.page_index,
                status=PageStatus.FAILED,
                engine=self.name,
                duration_s=0.0,
                reason="the page has no sound text layer; read it with the engine `rapidocr`",
            )
            yield PageResult(page=empty_page(page), ledger=row)

    def close(self) -> None:
        self._engine.close()
