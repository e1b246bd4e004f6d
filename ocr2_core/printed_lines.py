"""From a page image to its printed lines: detection, cutting out, recognition, and each line's type evidence."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr2_core.blocks import TextLine
from ocr2_core.fixed_pitch import find_fixed_pitch, fit_pitch
from ocr2_core.geometry import NORM_MAX, from_pixels
from ocr2_core.line_evidence import LineInk, find_bold, is_ideograph, measure_ink
from ocr2_core.missed_ink import BoxPx, find_missed_ink
from ocr2_core.text_detection import DetectedLine, TextDetector
from ocr2_core.text_recognition import RecognisedLine, TextRecogniser
from ocr2_core.word_gaps import restore

_LEAST_CONFIDENCE = 0.35
_PLAIN_SIGNS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_BULLETS = "·•●▪◦■□►➢✓◆"
_TALLEST_SIGN = 0.05  # of the page height


@dataclass(frozen=True, slots=True)
class _Cutting:
    crop_bgr: NDArray[np.uint8]
    bbox_px: BoxPx


class LineReader:
    """Finds and reads the printed lines of a page."""

    def __init__(self, detector: TextDetector, recogniser: TextRecogniser) -> None:
        self._detector = detector
        self._recogniser = recogniser

    def __call__(self, image: NDArray[np.uint8]) -> list[TextLine]:
        """Lines of an upright page, (height_px, width_px) gray or (…, 3) RGB, from the top down.

        Boxes are as tight as the detector gives them; two lines may stand side by side on one row.
        """
        bgr = to_bgr(image)
        height_px, width_px = bgr.shape[:2]
        kept = self._read([_cut(bgr, found) for found in self._detector(bgr)], height_px)
        inks = [measure_ink(_gray(cutting.crop_bgr), reading.text) for cutting, reading in kept]
        missed = self._read_missed(bgr, [cutting.bbox_px for cutting, _ in kept], inks)
        kept += missed
        inks += [measure_ink(_gray(cutting.crop_bgr), reading.text) for cutting, reading in missed]
        fits = [fit_pitch(reading, cutting.crop_bgr.shape[1]) for cutting, reading in kept]
        fixed = find_fixed_pitch(fits, [ink.font_height_px for ink in inks])
        kept = [
            (cutting, restore(reading, _gray(cutting.crop_bgr), ink.font_height_px, is_fixed_pitch=is_fixed is True))
            for (cutting, reading), ink, is_fixed in zip(kept, inks, fixed, strict=True)
        ]
        bold = find_bold([ink.stem_share for ink in inks], [len(reading.text) for _, reading in kept])
        lines = [
            TextLine(
                bbox_norm=from_pixels(cutting.bbox_px, width_px, height_px),
                text=_cleaned(reading.text),
                confidence=reading.confidence,
                font_height_norm=None if ink.font_height_px is None else ink.font_height_px / height_px * NORM_MAX,
                is_bold=is_bold,
                is_monospace=is_fixed,
            )
            for (cutting, reading), ink, is_bold, is_fixed in zip(kept, inks, bold, fixed, strict=True)
        ]
        return sorted(lines, key=lambda line: (line.bbox_norm[1] + line.bbox_norm[3], line.bbox_norm[0]))

    def _read(self, cuttings: list[_Cutting], page_height_px: int) -> list[tuple[_Cutting, RecognisedLine]]:
        cuttings = [cutting for cutting in cuttings if min(cutting.crop_bgr.shape[:2]) > 2]
        readings = self._recogniser([cutting.crop_bgr for cutting in cuttings])
        pairs = zip(cuttings, readings, strict=True)
        return [(cutting, reading) for cutting, reading in pairs if _is_text(reading, cutting, page_height_px)]

    def _read_missed(
        self, bgr: NDArray[np.uint8], boxes: list[BoxPx], inks: list[LineInk]
    ) -> list[tuple[_Cutting, RecognisedLine]]:
        """Writing outside the detector's boxes, taken only where the recogniser is sure of it."""
        sizes = [ink.font_height_px for ink in inks if ink.font_height_px is not None]
        if not sizes:
            return []
        size = statistics.median(sizes)
        missed = find_missed_ink(_gray(bgr), boxes, size)
        cuttings = [_cut_around(bgr, box, 0.3 * size) for box in missed.runs]
        found = [(cutting, line) for cutting, line in self._read(cuttings, bgr.shape[0]) if _is_sure(line)]
        bullets = [(_cut_around(bgr, box, 0.1 * size), RecognisedLine("•", 1.0)) for box in missed.bullets]
        return found + bullets


def _is_sure(line: RecognisedLine) -> bool:
    text = line.text.strip()
    if not text.isascii() or not any(map(str.isalnum, text)):
        return False
    return line.confidence > (0.85 if text.isdigit() or len(text) > 2 else 0.95)


def _cut_around(bgr: NDArray[np.uint8], box: BoxPx, margin_px: float) -> _Cutting:
    x0, y0 = max(0.0, box[0] - margin_px), max(0.0, box[1] - margin_px)
    x1, y1 = min(float(bgr.shape[1]), box[2] + margin_px), min(float(bgr.shape[0]), box[3] + margin_px)
    crop = np.ascontiguousarray(bgr[round(y0) : round(y1), round(x0) : round(x1)])
    return _Cutting(crop, (x0, y0, x1, y1))


def _is_text(reading: RecognisedLine, cutting: _Cutting, page_height_px: int) -> bool:
    """False for what is no writing: read with doubt, or a large shape that resembles a sign such as `■`."""
    height_px = cutting.bbox_px[3] - cutting.bbox_px[1]
    is_shape = height_px > _TALLEST_SIGN * page_height_px and not any(map(str.isalnum, reading.text))
    return bool(reading.text.strip()) and reading.confidence >= _LEAST_CONFIDENCE and not is_shape


def _cleaned(text: str) -> str:
    """Single spaces; a bullet that begins the line stands apart, and a raised dot there is a small bullet.

    Full-width signs in a line without ideographs are the plain ones.
    """
    if not any(map(is_ideograph, text)):
        text = text.translate(_PLAIN_SIGNS)
    words = text.split()
    if words and len(words[0]) > 1 and words[0][0] in _BULLETS and words[0][1].isalnum():
        words[:1] = [words[0][0], words[0][1:]]
    if len(words) > 1 and words[0] == "·":
        words[0] = "•"
    return " ".join(words)


def to_bgr(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The page in the channel order that the models were trained on."""
    import cv2

    if image.ndim == 2:
        return np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR), np.uint8)
    return np.asarray(cv2.cvtColor(image[:, :, :3], cv2.COLOR_RGB2BGR), np.uint8)


def _gray(bgr: NDArray[np.uint8]) -> NDArray[np.uint8]:
    import cv2

    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY), np.uint8)


def _cut(bgr: NDArray[np.uint8], found: DetectedLine) -> _Cutting:
    """The line's pixels, levelled where it is tilted and turned where it runs upwards."""
    x0, y0, x1, y1 = found.bbox_px
    left, top = max(0, math.floor(x0)), max(0, math.floor(y0))
    right, bottom = min(bgr.shape[1], math.ceil(x1) + 1), min(bgr.shape[0], math.ceil(y1) + 1)
    crop: Any = bgr[top:bottom, left:right]
    corners = found.corners_px
    tilt = abs(float(corners[1][1] - corners[0][1])) if corners[1][0] - corners[0][0] > y1 - y0 else 0.0
    edge = float(np.linalg.norm(corners[3] - corners[0]))
    if tilt > 0.25 * edge:
        crop = _level(bgr, corners)
    elif crop.shape[0] > 2.5 * crop.shape[1]:
        crop = np.rot90(crop, k=-1)  # text up the page's side reads when turned clockwise
    return _Cutting(np.ascontiguousarray(crop), (x0, y0, x1, y1))


def _level(bgr: NDArray[np.uint8], corners: NDArray[np.float32]) -> NDArray[np.uint8]:
    import cv2

    width = max(float(np.linalg.norm(corners[1] - corners[0])), float(np.linalg.norm(corners[2] - corners[3])))
    height = max(float(np.linalg.norm(corners[3] - corners[0])), float(np.linalg.norm(corners[2] - corners[1])))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    turn = cv2.getPerspectiveTransform(corners.astype(np.float32), target)
    size = (max(1, round(width)), max(1, round(height)))
    return np.asarray(
        cv2.warpPerspective(bgr, turn, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE), np.uint8
    )
