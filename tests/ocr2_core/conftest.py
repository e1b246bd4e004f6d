"""Page images for the reading tests, set with PyMuPDF's built-in fonts so that no system font is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pymupdf
import pytest

from ocr2_core.blocks import TextLine
from ocr2_core.engine import PageImage
from ocr2_core.geometry import from_pixels
from ocr2_core.rapidocr_engine import RapidOcrEngine

WIDTH_PT, HEIGHT_PT = 595, 842
DPI = 200


class PageMaker:
    """Sets text on an A4 page and renders it at 200 dpi with a little scanner noise."""

    def __init__(self) -> None:
        self._document = pymupdf.open()
        self.page = self._document.new_page(width=WIDTH_PT, height=HEIGHT_PT)

    def text(self, x: float, y: float, text: str, size: float = 10, font: str = "tiro") -> PageMaker:
        """One printed line with its baseline at (x, y) in points."""
        self.page.insert_text((x, y), text, fontsize=size, fontname=font)
        return self

    def lines(self, x: float, y: float, lines: list[str], *, leading: float = 12, **style: object) -> PageMaker:
        for index, line in enumerate(lines):
            self.text(x, y + index * leading, line, **style)  # type: ignore[arg-type]
        return self

    def rule(self, x0: float, y0: float, x1: float, y1: float) -> PageMaker:
        self.page.draw_line((x0, y0), (x1, y1), width=0.8)
        return self

    def render(self, page_index: int = 0) -> PageImage:
        pixmap = self.page.get_pixmap(dpi=DPI, colorspace=pymupdf.csGRAY)
        image = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width)
        noise = np.random.default_rng(page_index).normal(0, 4, image.shape)
        return PageImage(page_index, np.clip(image - 12.0 + noise, 0, 255).astype(np.uint8), float(DPI))


@pytest.fixture
def page_maker() -> Callable[[], PageMaker]:
    return PageMaker


@pytest.fixture(scope="session")
def engine() -> Iterator[RapidOcrEngine]:
    """One engine for all tests, which also shows that it keeps no state between documents."""
    engine = RapidOcrEngine(thread_count=2)
    yield engine
    engine.close()


@pytest.fixture
def line() -> Callable[..., TextLine]:
    """A TextLine with its top left corner at (x, y) in points of an A4 page, about as wide as it would print."""

    def make(
        x: float,
        y: float,
        text: str,
        *,
        size: float = 10.0,
        width: float | None = None,
        is_bold: bool | None = False,
        is_monospace: bool | None = False,
    ) -> TextLine:
        wide = width if width is not None else len(text) * size * (0.6 if is_monospace else 0.46)
        return TextLine(
            bbox_norm=from_pixels((x, y, x + wide, y + 1.2 * size), WIDTH_PT, HEIGHT_PT),
            text=text,
            confidence=0.99,
            font_height_norm=size / HEIGHT_PT * 999,
            is_bold=is_bold,
            is_monospace=is_monospace,
        )

    return make
