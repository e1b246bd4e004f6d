"""Ink on a gray page image: what was printed, without scanner edges, dust, show-through and punch holes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# enough to see a comma (0.4 mm), little enough to take milliseconds
WORKING_DPI = 100.0
# print on a poor scan still differs from its paper by twice this; show-through and dirt seldom reach it
MIN_CONTRAST = 45
_NOISE_SIGMAS = 5.0
_BACKGROUND_MM = 6.0
_MM_PER_INCH = 25.4

# a letter's or rule's length at least: the digits of a 6 pt page number are 1.5 mm high
_LETTER_MIN_MM = 1.2
# dots and accents count once a page has letters, dust never does
_DOT_MIN_MM = 0.35
_STREAK_MAX_MM = 1.2
_STREAK_MIN_PAGE_SHARE = 0.3
# how far the dark border of a scan reaches in, and the solid area a mark must have inside that to be more than border
_BORDER_MM = 12.0
_INSIDE_MIN_MM2 = 25.0
_EDGE_ZONE_MM = 3.0
_PUNCH_HOLE_MM = (3.5, 10.0)
_PUNCH_ZONE_MM = 22.0
# large dark areas fill the window the paper is looked for in: it is never taken for darker than this
_PAPER_MIN_LEVEL = 100.0
_PAPER_MIN_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class InkMap:
    """Printed marks at a working resolution.

    `mask`: bool (height, width), True on ink. `boxes`: int (n, 4) x, y, width, height of its connected marks.
    `dpi`: the working resolution; `scale`: working pixels per pixel of the image it was made from.
    """

    mask: NDArray[np.bool_]
    boxes: NDArray[np.int32]
    dpi: float
    scale: float

    def pixels(self, millimetres: float) -> float:
        return millimetres / _MM_PER_INCH * self.dpi


def find_ink(image: NDArray[np.uint8], dpi: float) -> InkMap:
    """The printed marks of a gray page image (height, width), uint8, dark on light.

    Darkness is judged against the paper around it (a large closing takes the ink away), so shading and gray paper do
    not matter; the threshold follows the scan's own noise.
    """
    scale = min(1.0, WORKING_DPI / dpi)
    working = image
    if scale < 1.0:
        size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        working = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    working_dpi = dpi * scale
    paper = _paper(working, working_dpi)
    darkness = cv2.subtract(paper, working)
    noise = 1.4826 * float(np.median(cv2.absdiff(darkness, np.full_like(darkness, int(np.median(darkness))))))
    threshold = max(MIN_CONTRAST, _NOISE_SIGMAS * noise)
    dark = (darkness > threshold).astype(np.uint8)
    _, labels, stats, _ = cv2.connectedComponentsWithStats(dark, connectivity=8)
    stroke = max(2, round(_STREAK_MAX_MM / _MM_PER_INCH * working_dpi))
    solid = cv2.morphologyEx(dark, cv2.MORPH_OPEN, np.ones((stroke, stroke), np.uint8))
    kept = _is_print(np.asarray(labels), np.asarray(stats), np.asarray(solid, dtype=np.bool_), working_dpi)
    mask: NDArray[np.bool_] = kept[labels]
    return InkMap(mask, stats[kept][:, :4].astype(np.int32), working_dpi, scale)


def is_blank(image: NDArray[np.uint8], dpi: float) -> bool:
    """Whether a page has nothing printed on it. One printed digit is enough to make it a page with content."""
    return len(find_ink(image, dpi).boxes) == 0


def ink_ratio(image: NDArray[np.uint8], dpi: float) -> float:
    """Share of the page area covered by print."""
    return float(find_ink(image, dpi).mask.mean())


def _paper(working: NDArray[np.uint8], dpi: float) -> NDArray[np.uint8]:
    """Brightness of the paper under the print, found on a small copy: a closing of some millimetres, smoothed."""
    small_scale = min(1.0, 25.0 / dpi)
    size = (max(1, round(working.shape[1] * small_scale)), max(1, round(working.shape[0] * small_scale)))
    small = cv2.resize(working, size, interpolation=cv2.INTER_AREA)
    reach = max(3, round(_BACKGROUND_MM / _MM_PER_INCH * dpi * small_scale) | 1)
    closed = cv2.morphologyEx(small, cv2.MORPH_CLOSE, cv2.getStructuringElement(cv2.MORPH_RECT, (reach, reach)))
    floor = max(_PAPER_MIN_LEVEL, _PAPER_MIN_SHARE * float(np.percentile(closed, 90)))
    closed = np.maximum(closed, np.uint8(floor))
    smooth = cv2.blur(closed, (reach, reach))
    paper = cv2.resize(smooth, (working.shape[1], working.shape[0]), interpolation=cv2.INTER_LINEAR)
    return np.asarray(paper, dtype=np.uint8)


def _is_print(labels: NDArray[Any], stats: NDArray[Any], solid: NDArray[np.bool_], dpi: float) -> NDArray[np.bool_]:
    """Which connected marks are print, by label; label 0 is the paper, `solid` the dark areas wider than a stroke."""
    pixels_per_mm = dpi / _MM_PER_INCH
    x, y, width, height, area = (stats[:, column].astype(np.float64) for column in range(5))
    page_height, page_width = labels.shape
    long_side, short_side = np.maximum(width, height), np.minimum(width, height)

    border = round(_BORDER_MM * pixels_per_mm)
    inner = np.s_[border : page_height - border, border : page_width - border]
    area_inside = np.bincount(labels[inner][solid[inner]], minlength=len(stats))
    touches_edge = (x <= 1) | (y <= 1) | (x + width >= page_width - 1) | (y + height >= page_height - 1)
    zone = _EDGE_ZONE_MM * pixels_per_mm
    in_edge_zone = (x + width < zone) | (y + height < zone) | (x > page_width - zone) | (y > page_height - zone)
    is_edge = in_edge_zone | (touches_edge & (area_inside < _INSIDE_MIN_MM2 * pixels_per_mm**2))

    share_of_page = np.maximum(height / page_height, width / page_width)
    is_streak = (short_side < _STREAK_MAX_MM * pixels_per_mm) & (share_of_page > _STREAK_MIN_PAGE_SHARE)
    is_hole = _is_punch_hole(x, y, width, height, area, labels.shape, pixels_per_mm)

    is_candidate = ~is_edge & ~is_hole
    is_candidate[0] = False
    has_letters = bool((is_candidate & ~is_streak & (long_side >= _LETTER_MIN_MM * pixels_per_mm)).any())
    kept: NDArray[np.bool_] = is_candidate & (long_side >= _DOT_MIN_MM * pixels_per_mm) & has_letters
    return kept


def _is_punch_hole(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    width: NDArray[np.float64],
    height: NDArray[np.float64],
    area: NDArray[np.float64],
    shape: tuple[int, ...],
    pixels_per_mm: float,
) -> NDArray[np.bool_]:
    """Filled discs of a punch hole's size in the outer margin."""
    smallest, largest = (millimetres * pixels_per_mm for millimetres in _PUNCH_HOLE_MM)
    zone = _PUNCH_ZONE_MM * pixels_per_mm
    is_round = (np.abs(width - height) < 0.25 * np.maximum(width, height)) & (area > 0.6 * width * height)
    has_size = (np.minimum(width, height) > smallest) & (np.maximum(width, height) < largest)
    in_margin = (x + width < zone) | (x > shape[1] - zone) | (y + height < zone) | (y > shape[0] - zone)
    result: NDArray[np.bool_] = is_round & has_size & in_margin
    return result
