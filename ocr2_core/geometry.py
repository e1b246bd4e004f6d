"""Boxes in 0..999 of a page and their turning by a small skew angle."""

from __future__ import annotations

import math

BBoxNorm = tuple[float, float, float, float]

NORM_MAX = 999.0


def clip_bbox(bbox_norm: BBoxNorm) -> BBoxNorm:
    """The box with ordered corners, inside 0..999, rounded to hundredths."""
    x0, x1 = sorted((bbox_norm[0], bbox_norm[2]))
    y0, y1 = sorted((bbox_norm[1], bbox_norm[3]))
    inside = (min(max(value, 0.0), NORM_MAX) for value in (x0, y0, x1, y1))
    left, top, right, bottom = (round(value, 2) for value in inside)
    return left, top, right, bottom


def from_pixels(bbox_px: tuple[float, float, float, float], width_px: float, height_px: float) -> BBoxNorm:
    """A pixel box as a share of the page in 0..999."""
    x0, y0, x1, y1 = bbox_px
    return clip_bbox(
        (
            x0 / width_px * NORM_MAX,
            y0 / height_px * NORM_MAX,
            x1 / width_px * NORM_MAX,
            y1 / height_px * NORM_MAX,
        )
    )


def union(boxes: list[BBoxNorm]) -> BBoxNorm:
    """The smallest box around all of `boxes` (at least one)."""
    if not boxes:
        raise ValueError("union of no boxes")
    return (
        min(box[0] for box in boxes),
        min(box[1] for box in boxes),
        max(box[2] for box in boxes),
        max(box[3] for box in boxes),
    )


def to_upright_page(bbox_norm: BBoxNorm, skew_degrees: float, aspect: float) -> BBoxNorm:
    """Turn a box of the deskewed frame back by `skew_degrees` clockwise about the page's centre.

    `aspect` is page width over height; it matters because 0..999 stands for different lengths on the two axes.
    Returns the bounding box of the turned corners.
    """
    if skew_degrees == 0.0:
        return clip_bbox(bbox_norm)
    angle = math.radians(skew_degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    centre = NORM_MAX / 2
    xs, ys = [], []
    for x, y in ((bbox_norm[i], bbox_norm[j]) for i in (0, 2) for j in (1, 3)):
        right, down = (x - centre) * aspect, y - centre
        # y grows downwards, so this matrix turns clockwise as seen on the page
        xs.append((right * cosine - down * sine) / aspect + centre)
        ys.append(right * sine + down * cosine + centre)
    return clip_bbox((min(xs), min(ys), max(xs), max(ys)))
