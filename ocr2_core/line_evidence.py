"""What a line's ink tells about its type: size, weight, fixed pitch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ocr2_core.text_recognition import RecognisedLine

# Shares of the type size (em): means over common book, screen and typewriter faces.
_TALL_SHARE = 0.70  # capitals, digits, b d f h k l, and g p q y from x-height to descender
_LOW_SHARE = 0.47  # a c e m n o r s u v w x z
_IDEOGRAPH_SHARE = 0.86
_LOW_LETTERS = frozenset("acemnorsuvwxz")
_BOLD_FACTOR = 1.28
_FEWEST_LINES_FOR_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class LineInk:
    """`font_height_px` is the type size; `stroke_share` the mean stroke width over it; None where it cannot be told."""

    font_height_px: float | None
    stroke_share: float | None


def measure_ink(crop_gray: NDArray[np.uint8], text: str) -> LineInk:
    """Type size and stroke width of one line from its crop (height_px, width_px) and its text.

    The heights of the connected ink components fall into two classes, letters of x-height and tall ones; how many of
    each there must be follows from the text, so the tall class can be told whatever letters the line holds.
    """
    import cv2

    if crop_gray.size == 0 or int(crop_gray.max()) - int(crop_gray.min()) < 40:
        return LineInk(None, None)
    threshold, mask = cv2.threshold(crop_gray, 0, 1, cv2.THRESH_BINARY_INV | cv2.THRESH_OTSU)
    mask = np.asarray(mask if mask.mean() <= 0.5 else 1 - mask, np.uint8)  # light type on a dark ground
    _, _, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    components = stats[1:]
    heights = components[:, cv2.CC_STAT_HEIGHT]
    widths = components[:, cv2.CC_STAT_WIDTH]
    areas = components[:, cv2.CC_STAT_AREA]
    crop_height = crop_gray.shape[0]
    letters = (heights > 0.18 * crop_height) & (heights < 0.97 * crop_height) & (widths < 3 * crop_height)
    if not letters.any():
        return LineInk(None, None)
    font_height = _font_height(np.sort(heights[letters]).astype(float), text)
    stroke = _stroke_width(mask, crop_gray, float(threshold), int(areas[letters].sum()))
    return LineInk(font_height, None if font_height is None or stroke is None else stroke / font_height)


def _font_height(heights: NDArray[np.float64], text: str) -> float | None:
    letters = [character for character in text if character.isalnum()]
    if not letters:
        return None
    if sum(map(_is_ideograph, letters)) * 2 > len(letters):
        return float(np.quantile(heights, 0.8)) / _IDEOGRAPH_SHARE
    low_share = sum(letter in _LOW_LETTERS for letter in letters) / len(letters)
    if low_share > 0.9:
        return float(np.median(heights)) / _LOW_SHARE
    tall = heights[int(len(heights) * low_share) :]
    # touching letters and brackets are higher, dots and broken letters lower: the middle of the class holds
    return float(np.median(tall)) / _TALL_SHARE


def _stroke_width(mask: NDArray[np.uint8], gray: NDArray[np.uint8], threshold: float, area: int) -> float | None:
    """Twice the ink's area over its outline's length, with the blur of the scan taken out by grey levels."""
    import cv2

    if area < 20:
        return None
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    outline = sum(cv2.arcLength(contour, True) for contour in contours)
    if outline <= 0:
        return None
    paper = float(np.median(gray[mask == 0])) if (mask == 0).any() else 255.0
    ink = float(np.quantile(gray[mask == 1], 0.1))
    if abs(paper - ink) < 1 or threshold < 0:
        return None
    darkness = float(np.clip((paper - gray.astype(np.float64)) / (paper - ink), 0, 1).sum())
    return 2 * darkness / outline


def _is_ideograph(character: str) -> bool:
    return "\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7a3"


def find_bold(stroke_shares: Sequence[float | None], text_lengths: Sequence[int]) -> list[bool | None]:
    """For each line of one page, whether its strokes are clearly thicker than the page's usual ones."""
    known = [(share, length) for share, length in zip(stroke_shares, text_lengths, strict=True) if share is not None]
    if len(known) < _FEWEST_LINES_FOR_WEIGHT:
        return [None] * len(stroke_shares)
    known.sort()
    half = sum(length for _, length in known) / 2
    running = 0
    usual = known[-1][0]
    for share, length in known:
        running += length
        if running >= half:
            usual = share
            break
    return [None if share is None else share > _BOLD_FACTOR * usual for share in stroke_shares]


def is_fixed_pitch(line: RecognisedLine, width_over_height: float) -> bool | None:
    """Whether the characters stand at equal distances, as typewriter faces do; None for lines too short to tell."""
    if len(line.text) < 6 or len(line.centres) != len(line.text):
        return None
    if any(_is_ideograph(character) for character in line.text):
        return None
    residuals, weights = [], []
    start = 0
    for word in line.text.split(" "):
        end = start + len(word)
        if len(word) >= 4:
            places = np.asarray(line.centres[start:end]) * width_over_height
            index = np.arange(len(word))
            pitch, offset = np.polyfit(index, places, 1)
            if pitch > 0:
                residuals.append(float(np.std(places - pitch * index - offset) / pitch))
                weights.append(len(word))
        start = end + 1
    if sum(weights) < 6:
        return None
    return float(np.average(residuals, weights=weights)) < 0.13
