"""What both CPU engines share: lines + regions + rules of one page into blocks and a ledger row."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ocr2_core.blocks import Block, BlockLabel, PageBlocks, TextLine
from ocr2_core.engine import PageImage
from ocr2_core.geometry import NORM_MAX, BBoxNorm
from ocr2_core.grouping import group_lines
from ocr2_core.layout_detection import LayoutRegion
from ocr2_core.ledger import LedgerRow, PageResult, PageStatus
from ocr2_core.page_line import mean_confidence
from ocr2_core.ruling_lines import Ruling, find_ruling

logger = logging.getLogger(__name__)

_LEAST_PICTURE_INK = 0.3  # share of a picture region's ink that lies outside its printed lines


def read_each(
    pages: Iterable[PageImage], engine: str, read: Callable[[PageImage], tuple[PageBlocks, LedgerRow]]
) -> Iterator[PageResult]:
    """Read page by page; an exception on one page becomes its `failed` row and the others go on."""
    for page in pages:
        start = time.perf_counter()
        try:
            blocks, row = read(page)
        except MemoryError:
            raise
        except Exception as error:
            logger.exception("page %d could not be read", page.page_index + 1)
            blocks = empty_page(page)
            row = LedgerRow(
                page_index=page.page_index,
                status=PageStatus.FAILED,
                engine=engine,
                duration_s=0.0,
                reason=f"reading the page failed: {type(error).__name__}: {error}",
            )
        yield PageResult(page=blocks, ledger=row.model_copy(update={"duration_s": time.perf_counter() - start}))


def empty_page(page: PageImage, blocks: Sequence[Block] = ()) -> PageBlocks:
    return PageBlocks(
        page_index=page.page_index,
        width_pt=page.width_pt,
        height_pt=page.height_pt,
        rotation_degrees=page.rotation_degrees,
        skew_degrees=page.skew_degrees,
        page_label=page.page_label,
        blocks=list(blocks),
    )


def assemble(
    page: PageImage,
    lines: Sequence[TextLine],
    regions: Sequence[LayoutRegion],
    engine: str,
    repaired: str | None = None,
) -> tuple[PageBlocks, LedgerRow]:
    """Blocks and ledger row out of what was found on the page. `repaired` says which fallback had to be used."""
    gray = to_gray(page.image)
    ruling = find_ruling(gray, page.dpi)
    printed = [*(line.bbox_norm for line in lines), *ruling.horizontal_norm, *_grid_rules(ruling)]
    regions = [
        region for region in regions if region.label is not BlockLabel.PICTURE or is_picture(gray, region, printed)
    ]
    blocks = group_lines(lines, regions, ruling, width_pt=page.width_pt, height_pt=page.height_pt)
    words = sum(len(line.text.split()) for line in lines)
    reason = repaired
    if not lines:
        reason = "; ".join(filter(None, (repaired, "no text found")))
        if not blocks:
            blocks = [Block(label=BlockLabel.PICTURE, bbox_norm=ink_box(gray))]
    row = LedgerRow(
        page_index=page.page_index,
        status=PageStatus.REPAIRED if repaired else PageStatus.OK,
        engine=engine,
        duration_s=0.0,
        token_count=words,
        confidence=mean_confidence(lines),
        reason=reason,
    )
    return empty_page(page, blocks), row


def to_gray(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    import cv2

    return image if image.ndim == 2 else np.asarray(cv2.cvtColor(image[:, :, :3], cv2.COLOR_RGB2GRAY), np.uint8)


def _ink(gray: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Clearly darker than the paper around it, light gray type included."""
    paper = float(np.median(gray[::4, ::4])) if gray.size else 255.0
    return gray.astype(np.float32) < paper - 40


def _grid_rules(ruling: Ruling) -> list[BBoxNorm]:
    """Thin boxes along the edges of all cells."""
    boxes: list[BBoxNorm] = []
    for x0, y0, x1, y1 in (cell.bbox_norm for grid in ruling.grids for cell in grid.cells):
        boxes += [(x0, y0, x1, y0), (x0, y1, x1, y1), (x0, y0, x0, y1), (x1, y0, x1, y1)]
    return boxes


def is_picture(gray: NDArray[np.uint8], region: LayoutRegion, printed: Sequence[BBoxNorm]) -> bool:
    """Whether the region's ink is more than its printed lines and rules: the detector takes listings for figures."""
    height_px, width_px = gray.shape
    x0, y0, x1, y1 = _pixels(region.bbox_norm, width_px, height_px)
    ink = _ink(gray[y0:y1, x0:x1])
    if ink.size == 0 or not ink.any():
        return False
    total = int(ink.sum())
    margin = max(2, round(0.002 * height_px))
    for bbox_norm in printed:
        left, top, right, bottom = _pixels(bbox_norm, width_px, height_px)
        rows = slice(max(0, top - margin - y0), max(0, bottom + margin - y0))
        ink[rows, max(0, left - margin - x0) : max(0, right + margin - x0)] = False
    return int(ink.sum()) >= _LEAST_PICTURE_INK * total


def ink_box(gray: NDArray[np.uint8]) -> tuple[float, float, float, float]:
    """Box around all ink of the page, the whole page where there is none."""
    ink = _ink(gray)
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    if not len(rows):
        return 0.0, 0.0, NORM_MAX, NORM_MAX
    height_px, width_px = gray.shape
    return (
        float(columns[0]) / width_px * NORM_MAX,
        float(rows[0]) / height_px * NORM_MAX,
        float(columns[-1] + 1) / width_px * NORM_MAX,
        float(rows[-1] + 1) / height_px * NORM_MAX,
    )


def _pixels(bbox_norm: tuple[float, float, float, float], width_px: int, height_px: int) -> tuple[int, int, int, int]:
    x, y = width_px / NORM_MAX, height_px / NORM_MAX
    return round(bbox_norm[0] * x), round(bbox_norm[1] * y), round(bbox_norm[2] * x), round(bbox_norm[3] * y)
