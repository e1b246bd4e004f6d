"""The tilt of a page's text lines, by the sharpness of projection profiles (Postl, 1986).

When the profile's axis is parallel to the text lines, rows of ink and rows of paper alternate sharply; the sum of
squared differences between neighbouring rows is greatest there.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ocr2_core.ink import InkMap, find_ink

MAX_SKEW_DEGREES = 5.0
_COARSE_STEP_DEGREES = 0.25
_FINE_STEP_DEGREES = 0.05
_MAX_INK_PIXELS = 60_000
# best over middling sharpness: dust gives up to 1.4, a few words 2, any page with some lines 5 to 40
_MIN_SHARPNESS_RATIO = 2.5


def find_skew(image: NDArray[np.uint8], dpi: float) -> float:
    """Clockwise tilt of the text of a gray page image in degrees, within ±5; 0.0 where no line shows one."""
    return skew_of_ink(find_ink(image, dpi))


def skew_of_ink(ink: InkMap) -> float:
    """As find_skew, for ink found already."""
    ys, xs = ink_points(ink)
    if len(ys) < 50:
        return 0.0
    coarse = np.arange(-MAX_SKEW_DEGREES, MAX_SKEW_DEGREES + 1e-9, _COARSE_STEP_DEGREES)
    sharpness = np.array([_sharpness(ys, xs, angle) for angle in coarse])
    best = int(sharpness.argmax())
    if sharpness[best] < _MIN_SHARPNESS_RATIO * float(np.median(sharpness)):
        return 0.0
    fine = coarse[best] + np.arange(-0.3, 0.3 + 1e-9, _FINE_STEP_DEGREES)
    sharpness = np.array([_sharpness(ys, xs, angle) for angle in fine])
    return round(float(_peak(fine, sharpness)), 3)


def ink_points(ink: InkMap) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows and columns of up to 60,000 ink pixels, relative to the page's centre."""
    ys, xs = np.nonzero(ink.mask)
    if len(ys) > _MAX_INK_PIXELS:
        chosen = np.random.default_rng(0).choice(len(ys), _MAX_INK_PIXELS, replace=False)
        ys, xs = ys[chosen], xs[chosen]
    height, width = ink.mask.shape
    return (ys - height / 2).astype(np.float32), (xs - width / 2).astype(np.float32)


def _sharpness(ys: NDArray[np.float32], xs: NDArray[np.float32], angle_degrees: float) -> float:
    """How sharply rows of ink and paper alternate along lines tilted clockwise by the angle."""
    angle = math.radians(angle_degrees)
    rows = ys * np.float32(math.cos(angle)) - xs * np.float32(math.sin(angle))
    profile = np.bincount((rows - rows.min()).astype(np.int32)).astype(np.float64)
    return float(np.square(np.diff(profile)).sum())


def _peak(angles: NDArray[np.float64], sharpness: NDArray[np.float64]) -> float:
    """Top of the parabola through the best angle and its two neighbours."""
    best = int(sharpness.argmax())
    if best in (0, len(angles) - 1):
        return float(angles[best])
    left, middle, right = sharpness[best - 1 : best + 2]
    bend = left - 2 * middle + right
    shift = 0.0 if bend == 0 else 0.5 * (left - right) / bend
    return float(angles[best] + shift * (angles[1] - angles[0]))
