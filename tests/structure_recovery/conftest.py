"""Makes small pages by hand: one call a block, type sizes in points on a 600 × 800 pt page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ocr2_core.blocks import Block, BlockLabel, PageBlocks, TextLine

WIDTH_PT, HEIGHT_PT = 600.0, 800.0


def norm(x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
    """A box in points as a box in 0..999."""
    return x0 / WIDTH_PT * 999, y0 / HEIGHT_PT * 999, x1 / WIDTH_PT * 999, y1 / HEIGHT_PT * 999


def make_block(
    text: str,
    y_pt: float,
    *,
    x_pt: float = 60,
    width_pt: float | None = None,
    size_pt: float = 10,
    bold: bool | None = False,
    label: str = "text",
    lines: list[str] | None = None,
    height_pt: float | None = None,
) -> Block:
    """A block whose lines are `lines` (or `text` as one line), `size_pt` high, 1.2 lines apart."""
    rows = lines if lines is not None else [text]
    made = []
    for number, row in enumerate(rows):
        wide = width_pt if width_pt is not None else max(len(row), 1) * size_pt * 0.5
        top = y_pt + number * 1.2 * size_pt
        made.append(
            TextLine(
                bbox_norm=norm(x_pt, top, min(x_pt + wide, 590), top + size_pt),
                text=row,
                font_height_norm=size_pt / HEIGHT_PT * 999,
                is_bold=bold,
            )
        )
    bottom = y_pt + height_pt if height_pt else y_pt + (len(rows) - 1) * 1.2 * size_pt + size_pt
    right = max(line.bbox_norm[2] for line in made)
    left, top_norm, _, bottom_norm = norm(x_pt, y_pt, 0, bottom)
    keeps_lines = label not in ("table", "picture")
    return Block(
        label=BlockLabel(label),
        bbox_norm=(left, top_norm, right, bottom_norm),
        text=text,
        lines=made if keeps_lines else [],
    )


def make_page(page_index: int, *blocks: Block, **options: float) -> PageBlocks:
    return PageBlocks(
        page_index=page_index,
        width_pt=WIDTH_PT,
        height_pt=HEIGHT_PT,
        blocks=list(blocks),
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture
def block() -> Callable[..., Block]:
    return make_block


@pytest.fixture
def page() -> Callable[..., PageBlocks]:
    return make_page


@pytest.fixture
def prose() -> Callable[[float], Block]:
    """A paragraph of three full lines at a height: what makes a page's body size known."""

    def make(
        y_pt: float, text: str = "Some words of running text that fill the line to its very end and then"
    ) -> Block:
        row = text[:70]
        return make_block(f"{row} {row} {row}.", y_pt, lines=[row, row, f"{row}."], width_pt=480)

    return make
