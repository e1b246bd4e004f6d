"""What a line's ink tells about its type: size and weight."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Shares of the type size (em): means over common book, screen and typewriter faces.
_TALL_SHARE = 0.70  # capitals, digits, b d f h k l, and g p q y from x-height to descender
_LOW_SHARE = 0.47
_IDEOGRAPH_SHARE = 0.86
_LOW_LETTERS = frozenset("acemnorsuvwxzit")
_BOLD_FACTOR = 1.27
_FEWEST_LINES_FOR_WEIGHT = 4
_ENLARGEMENT = 2  # letters at 200 dpi are 20 px high: a pixel more or less is 5 %


@dataclass(frozen=True, slots=True)
class LineInk:
    """`font_height_px` is the type size; `stem_share` the width of the stems over it; None where it cannot be told."""

    font_height_px: float | None
    stem_share: float | None


def measure_ink(crop_gray: NDArray[np.uint8], text: str) -> LineInk:
    """Type size and stem width of one line from its crop (height_px, width_px) and its text.

    The connected ink components' heights fall into two classes, letters of x-height and tall ones; how many tall
    ones there are follows from the text, so their height can be told whatever letters the line holds.
    """
    import cv2

    if crop_gray.size == 0 or int(crop_gray.max()) - int(crop_gray.min()) < 40:
        return LineInk(None, None)
    large = cv2.resize(crop_gray, None, fx=_ENLARGEMENT, fy=_ENLARGEMENT, interpolation=cv2.INTER_CUBIC)
    _, otsu = cv2.threshold(large, 0, 1, cv2.THRESH_BINARY_INV | cv2.THRESH_OTSU)
    mask = np.asarray(otsu, np.uint8)
    if mask.mean() > 0.5:  # light type on a dark ground
        mask, large = 1 - mask, 255 - np.asarray(large, np.uint8)
    _, _, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    heights, widths = stats[1:, cv2.CC_STAT_HEIGHT], stats[1:, cv2.CC_STAT_WIDTH]
    height = large.shape[0]
    letters = (heights > 0.18 * height) & (heights < 0.97 * height) & (widths < 3 * height)
    if not letters.any():
        return LineInk(None, None)
    font_height = _font_height(np.sort(heights[letters]).astype(np.float64), text)
    if font_height is None:
        return LineInk(None, None)
    stem = _stem_width(np.asarray(large, np.uint8), mask, font_height)
    return LineInk(font_height / _ENLARGEMENT, None if stem is None else stem / font_height)


def _font_height(heights: NDArray[np.float64], text: str) -> float | None:
    letters = [unicodedata.normalize("NFD", character)[0] for character in text if character.isalnum()]
    if not letters:
        return None
    if sum(map(is_ideograph, letters)) * 2 > len(letters):
        return float(np.quantile(heights, 0.8)) / _IDEOGRAPH_SHARE
    tall_count = sum(letter not in _LOW_LETTERS for letter in letters)
    if tall_count < 0.07 * len(letters):
        return _middle_mean(heights[len(heights) // 10 :]) / _LOW_SHARE
    return _middle_mean(heights[-max(1, tall_count) :]) / _TALL_SHARE


def _middle_mean(values: NDArray[np.float64]) -> float:
    """Mean of the middle half of sorted values: touching letters are higher, broken ones lower."""
    cut = len(values) // 4
    return float(values[cut : len(values) - cut].mean())


def _stem_width(gray: NDArray[np.uint8], mask: NDArray[np.uint8], font_height: float) -> float | None:
    """Usual length of the horizontal runs of ink, cut at half darkness so that the scan's blur does not count."""
    sample = mask[::3, ::3] > 0
    if not sample.any() or sample.all():
        return None
    paper = float(np.median(gray[::3, ::3][~sample]))
    ink = float(np.quantile(gray[::3, ::3][sample], 0.1))
    # a column of paper between the rows, so that all rows can be walked as one
    dark = np.pad(gray < (paper + ink) / 2, ((0, 0), (1, 1))).ravel()
    edges = np.flatnonzero(dark[1:] != dark[:-1])
    runs = edges[1::2] - edges[::2]
    runs = runs[runs < 0.4 * font_height]
    if len(runs) < 10:
        return None
    # the shorter runs are hairlines, the longer ones bowls and crossbars
    return float(np.sort(runs)[round(0.3 * len(runs)) : round(0.6 * len(runs))].mean())


def is_ideograph(character: str) -> bool:
    return "\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7a3"


def find_bold(stem_shares: Sequence[float | None], text_lengths: Sequence[int]) -> list[bool | None]:
    """For each line of one page, whether its stems are clearly thicker than the page's usual ones."""
    known = sorted(
        (share, length) for share, length in zip(stem_shares, text_lengths, strict=True) if share is not None
    )
    if len(known) < _FEWEST_LINES_FOR_WEIGHT:
        return [None] * len(stem_shares)
    running, half = 0, sum(length for _, length in known) / 2
    usual = known[-1][0]
    for share, length in known:
        running += length
        if running >= half:
            usual = share
            break
    return [None if share is None else share > _BOLD_FACTOR * usual for share in stem_shares]
