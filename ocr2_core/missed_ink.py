"""Writing that the detector passed over (lone page numbers, bullets), found by the ink left outside its boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BoxPx = tuple[float, float, float, float]

_MOST_RUNS = 80  # more left-over ink than this is a picture
_EDGE_SHARE = 0.02  # of the page: shadows and punch holes
_LEAST_CONTRAST = 50


@dataclass(frozen=True, slots=True)
class MissedInk:
    """Boxes in pixels: `runs` of letter-sized ink to be read, `bullets` in front of a line."""

    runs: list[BoxPx]
    bullets: list[BoxPx]


def find_missed_ink(gray: NDArray[np.uint8], boxes: Sequence[BoxPx], font_height_px: float) -> MissedInk:
    """Look for ink of the size of letters, `font_height_px` being the type size, that lies in none of `boxes`."""
    import cv2

    height_px, width_px = gray.shape
    paper = int(np.median(gray[::4, ::4]))
    mask = (gray < paper - _LEAST_CONTRAST).astype(np.uint8)
    for x0, y0, x1, y1 in boxes:
        mask[max(0, int(y0) - 2) : int(y1) + 3, max(0, int(x0) - 2) : int(x1) + 3] = 0
    edge_x, edge_y = round(_EDGE_SHARE * width_px), round(_EDGE_SHARE * height_px)
    _, _, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    letters, dots, everything = [], [], []
    for x, y, width, height, area in stats[1:].tolist():
        if x < edge_x or y < edge_y or x + width > width_px - edge_x or y + height > height_px - edge_y:
            continue
        box = (float(x), float(y), float(x + width), float(y + height))
        everything.append(box)
        if _is_dot(width, height, area, font_height_px):
            dots.append(box)
        elif 0.45 < height / font_height_px < 1.3 and 0.06 < width / font_height_px < 1.5:
            letters.append(box)
    runs = _runs(letters, font_height_px)
    return MissedInk(
        runs if len(runs) <= _MOST_RUNS else [],
        [
            dot
            for dot in dots
            if _leads_a_line(dot, boxes, font_height_px) and not _is_leader(dot, everything, font_height_px)
        ],
    )


def _is_dot(width: int, height: int, area: int, font_height_px: float) -> bool:
    size = max(width, height)
    round_enough = min(width, height) > 0.75 * size and area > 0.65 * width * height
    return round_enough and 0.2 * font_height_px < size < 0.5 * font_height_px


def _leads_a_line(dot: BoxPx, boxes: Sequence[BoxPx], font_height_px: float) -> bool:
    """A line (no lone number) begins shortly right of the dot, at its middle height, and nothing is left of it."""
    middle = (dot[1] + dot[3]) / 2
    beside = [box for box in boxes if box[1] + 0.25 * (box[3] - box[1]) < middle < box[3] - 0.25 * (box[3] - box[1])]
    right = [box for box in beside if box[0] >= dot[2] - 2]
    if not right:
        return False
    line = min(right)
    near = 0.2 * font_height_px < line[0] - dot[2] < 2.5 * font_height_px and line[2] - line[0] > 2 * font_height_px
    return near and not any(box[0] < dot[0] and box[2] > dot[0] - 4 * font_height_px for box in beside)


def _is_leader(dot: BoxPx, everything: Sequence[BoxPx], font_height_px: float) -> bool:
    """Other dots stand shortly left of it on the same level."""
    middle = (dot[1] + dot[3]) / 2
    return any(
        0 < dot[0] - box[2] < 2.5 * font_height_px and abs((box[1] + box[3]) / 2 - middle) < 0.25 * font_height_px
        for box in everything
    )


def _runs(letters: list[BoxPx], font_height_px: float) -> list[BoxPx]:
    """Letters side by side as one box."""
    runs: list[BoxPx] = []
    for box in sorted(letters):
        for index, run in enumerate(runs):
            level = abs((run[1] + run[3]) / 2 - (box[1] + box[3]) / 2) < 0.4 * font_height_px
            if level and box[0] - run[2] < 0.7 * font_height_px:
                x1, y0, y1 = max(run[2], box[2]), min(run[1], box[1]), max(run[3], box[3])
                runs[index] = (run[0], y0, x1, y1)
                break
        else:
            runs.append(box)
    return runs
