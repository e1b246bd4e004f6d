"""Which way up a page is, from its picture alone: first the direction of its lines, then head or foot.

Lines: a letter's nearest neighbour stands in the same line, not in the next (the docstrum of O'Gorman, 1993). Head or
foot: the text-line orientation classifier that RapidOCR bundles, asked about some lines as they are and turned round;
the difference of the two answers cancels the classifier's leaning. Lines that run down the page are either a page lying
on its side or vertical Chinese or Japanese on an upright one: in the second case the characters, each turned by itself,
make a line the classifier knows. In doubt the page stays as it is.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr2_core.errors import EngineError
from ocr2_core.ink import InkMap, find_ink
from ocr2_core.model_runtime import Model, load_model
from ocr2_core.skew import skew_of_ink

logger = logging.getLogger(__name__)

Gray = NDArray[np.uint8]

_CLASSIFIER_FILE = "ch_ppocr_mobile_v2.0_cls_mobile.onnx"
_CROP_HEIGHT_PX, _CROP_WIDTH_PX = 48, 192
_CROP_MAX_ASPECT = 6.0
# crops a page is asked about; more of them only while the answer is not clear
_CROP_COUNTS = (6, 18, 48)
_VERTICAL_CROP_COUNT = 12
_CLEAR_LOG_ODDS = 2.0
# mean log odds needed to turn a page upside down or sideways: a wrong turn costs the page, a missed one is seen
_MIN_LOG_ODDS = 0.6
# to take lines for vertical writing: real columns give 4.7 to 5.8 and more than 0.75 of the answer for the line as a
# whole, slices of other lines at most 3 and 0.45
_MIN_VERTICAL_LOG_ODDS = 3.5
_MIN_VERTICAL_SHARE = 0.6
_LETTER_MM = (0.8, 25.0)
_LINE_HEIGHT_MM = (1.4, 9.0)
_WORD_GAP_MM = 2.5
# share of a line's box that is ink: rows of dots in a contents page have less and look the same upside down
_MIN_LINE_INK = 0.15
_MIN_LETTERS = 8
# share of letters whose nearest neighbour stands beside them, not above or below: upright pages have 0.5 to 1
_SIDEWAYS_BELOW = 0.4
_SAMPLED_LETTERS = 400
_MOST_LETTERS = 4000


def find_rotation(image: Gray, dpi: float) -> int:
    """Clockwise turn (0, 90, 180, 270) that sets a gray page image upright; 0 in doubt."""
    return rotation_of_ink(image, find_ink(image, dpi))


def rotation_of_ink(image: Gray, ink: InkMap) -> int:
    """As find_rotation, for ink found already."""
    share_beside = _share_with_neighbour_beside(ink)
    if share_beside is None:
        return 0
    base = 0
    if share_beside < _SIDEWAYS_BELOW:
        # from here on the lines run across
        image, ink, base = turn(image, 90), _turned(ink), 90
    log_odds = _log_odds_upright(image, ink)
    stacked = _log_odds_upright(image, ink, is_vertical=True)
    if abs(stacked) >= max(_MIN_VERTICAL_LOG_ODDS, _MIN_VERTICAL_SHARE * abs(log_odds)):
        return (base - 90) % 360 if stacked > 0 else base + 90
    if abs(log_odds) < _MIN_LOG_ODDS:
        return 0
    return base if log_odds > 0 else (base + 180) % 360


def turn(image: NDArray[np.uint8], rotation_degrees: int) -> NDArray[np.uint8]:
    """The image (gray or RGB) turned clockwise by quarter turns, contiguous in memory."""
    return np.ascontiguousarray(np.rot90(image, -rotation_degrees // 90))


def _turned(ink: InkMap) -> InkMap:
    return InkMap(np.ascontiguousarray(np.rot90(ink.mask, -1)), ink.boxes, ink.dpi, ink.scale)


def _share_with_neighbour_beside(ink: InkMap) -> float | None:
    """Share of letters that stand closer to a letter at their right than to one below; None with too few letters."""
    boxes = ink.boxes.astype(np.float32)
    long_side = boxes[:, 2:].max(axis=1, initial=0)
    boxes = boxes[(long_side > ink.pixels(_LETTER_MM[0])) & (long_side < ink.pixels(_LETTER_MM[1]))]
    if len(boxes) < _MIN_LETTERS:
        return None
    random = np.random.default_rng(0)
    if len(boxes) > _MOST_LETTERS:
        boxes = boxes[random.choice(len(boxes), _MOST_LETTERS, replace=False)]
    sample = (
        boxes if len(boxes) <= _SAMPLED_LETTERS else boxes[random.choice(len(boxes), _SAMPLED_LETTERS, replace=False)]
    )
    beside = _nearest_gap(sample, boxes, axis=0)
    below = _nearest_gap(sample, boxes, axis=1)
    has_neighbour = np.isfinite(beside) | np.isfinite(below)
    if has_neighbour.sum() < _MIN_LETTERS:
        return None
    return float((beside < below)[has_neighbour].mean())


def _nearest_gap(sample: NDArray[np.float32], boxes: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """For each sampled box the gap to the next box along the axis (0: right, 1: down) that overlaps it across."""
    across = 1 - axis
    start, end = boxes[:, axis], boxes[:, axis] + boxes[:, axis + 2]
    low, high = boxes[:, across], boxes[:, across] + boxes[:, across + 2]
    sample_start, sample_end = sample[:, axis, None], (sample[:, axis] + sample[:, axis + 2])[:, None]
    sample_low, sample_high = sample[:, across, None], (sample[:, across] + sample[:, across + 2])[:, None]
    overlap = np.minimum(sample_high, high) - np.maximum(sample_low, low)
    gap = start - sample_end
    is_next = (overlap > 0.4 * np.minimum(sample_high - sample_low, high - low)) & (gap >= -1) & (end > sample_end)
    nearest: NDArray[np.float32] = np.where(is_next & (start > sample_start), gap, np.inf).min(axis=1)
    return nearest


def _log_odds_upright(image: Gray, ink: InkMap, *, is_vertical: bool = False) -> float:
    """Mean log odds, over some text lines, that the page is not upside down; 0.0 without evidence.

    `is_vertical`: the lines are columns of vertical writing turned clockwise; their characters are turned back first.
    """
    classifier = _classifier()
    if classifier is None:
        return 0.0
    skew_degrees = skew_of_ink(ink)
    lines = _line_boxes(ink, skew_degrees)
    log_odds = 0.0
    for count in (_VERTICAL_CROP_COUNT,) if is_vertical else _CROP_COUNTS:
        if not len(lines):
            break
        chosen = lines[np.unique(np.linspace(0, len(lines) - 1, min(count, len(lines))).astype(int))]
        crops = [_crop(image, ink, box, skew_degrees) for box in chosen]
        each = _classify(classifier, [_stand_up(crop) for crop in crops] if is_vertical else crops)
        log_odds = float(each.mean())
        uncertainty = float(each.std()) / math.sqrt(len(each))
        if len(chosen) < count or abs(log_odds) - 2 * uncertainty >= _CLEAR_LOG_ODDS:
            break
    return log_odds


def _line_boxes(ink: InkMap, skew_degrees: float) -> NDArray[np.float32]:
    """Boxes x, y, width, height of word groups of the deskewed ink: the long ones, where there are enough."""
    mask = ink.mask.astype(np.uint8)
    size = (mask.shape[1], mask.shape[0])
    straight = cv2.warpAffine(mask, _deskew_matrix(size, skew_degrees), size, flags=cv2.INTER_NEAREST)
    reach = max(3, round(ink.pixels(_WORD_GAP_MM)))
    smeared = cv2.morphologyEx(straight, cv2.MORPH_CLOSE, np.ones((1, reach), np.uint8))
    _, labels, stats, _ = cv2.connectedComponentsWithStats(smeared)
    ink_area = np.bincount(np.asarray(labels)[straight > 0], minlength=len(stats))[1:]
    boxes = stats[1:, :4].astype(np.float32)
    height = boxes[:, 3]
    aspect = boxes[:, 2] / np.maximum(height, 1)
    is_line = (height > ink.pixels(_LINE_HEIGHT_MM[0])) & (height < ink.pixels(_LINE_HEIGHT_MM[1])) & (aspect > 2.5)
    is_line &= ink_area > _MIN_LINE_INK * boxes[:, 2] * height
    boxes, aspect = boxes[is_line], aspect[is_line]
    long_ones = boxes[aspect >= _CROP_MAX_ASPECT]
    if len(long_ones) >= _CROP_COUNTS[-1]:
        return long_ones
    return boxes[np.argsort(-np.minimum(aspect, _CROP_MAX_ASPECT), kind="stable")[: _CROP_COUNTS[-1]]]


def _crop(image: Gray, ink: InkMap, box: NDArray[np.float32], skew_degrees: float) -> NDArray[np.float32]:
    """One deskewed line as the classifier wants it: 48 px high, contrast stretched, -1..1."""
    x, y, width, height = (float(value) for value in box)
    margin = 0.12 * height
    width = min(width, _CROP_MAX_ASPECT * height)
    left, top = (x - margin) / ink.scale, (y - margin) / ink.scale
    scale = _CROP_HEIGHT_PX * ink.scale / (height + 2 * margin)
    width_px = min(_CROP_WIDTH_PX, max(8, round((width + 2 * margin) / ink.scale * scale)))
    to_crop = np.array([[scale, 0, -left * scale], [0, scale, -top * scale]])
    deskew = np.vstack([_deskew_matrix((image.shape[1], image.shape[0]), skew_degrees), [0, 0, 1]])
    crop = cv2.warpAffine(
        image, to_crop @ deskew, (width_px, _CROP_HEIGHT_PX), flags=cv2.INTER_LINEAR, borderValue=255
    ).astype(np.float32)
    dark, light = np.percentile(crop, (3, 70))
    stretched: NDArray[np.float32] = np.clip((crop - dark) / max(light - dark, 30.0), 0, 1) * 2 - 1
    return stretched


def _stand_up(crop: NDArray[np.float32]) -> NDArray[np.float32]:
    """A line of characters that lie on their side, cut into squares that are turned back one by one."""
    squares = range(0, crop.shape[1] - _CROP_HEIGHT_PX + 1, _CROP_HEIGHT_PX)
    return np.hstack([np.rot90(crop[:, left : left + _CROP_HEIGHT_PX]) for left in squares])


def _classify(classifier: Model, crops: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Log odds of upright, for each crop: half the difference of the answers for it and for it turned round."""
    batch = np.zeros((2 * len(crops), 3, _CROP_HEIGHT_PX, _CROP_WIDTH_PX), np.float32)
    for index, crop in enumerate(crops):
        batch[index, :, :, : crop.shape[1]] = crop
        batch[len(crops) + index, :, :, : crop.shape[1]] = crop[::-1, ::-1]
    probabilities = np.clip(np.asarray(classifier(batch)[0], dtype=np.float32), 1e-3, 1.0)
    odds = np.log(probabilities[:, 0]) - np.log(probabilities[:, 1])
    difference: NDArray[np.float32] = (odds[: len(crops)] - odds[len(crops) :]) / 2
    return difference


def _deskew_matrix(size: tuple[int, int], skew_degrees: float) -> NDArray[Any]:
    matrix: NDArray[Any] = cv2.getRotationMatrix2D(((size[0] - 1) / 2, (size[1] - 1) / 2), skew_degrees, 1.0)
    return matrix


@functools.cache
def _classifier() -> Model | None:
    package = importlib.util.find_spec("rapidocr")
    if package is None or package.origin is None:
        logger.warning("rapidocr is not installed: pages scanned upside down or sideways will not be turned.")
        return None
    try:
        path = Path(package.origin).parent / "models" / _CLASSIFIER_FILE
        return load_model(path, thread_count=1, cache_dir=None, runtime="onnxruntime")
    except EngineError as error:
        logger.warning("Pages scanned upside down or sideways will not be turned: %s", error)
        return None
