"""A page as stored in its file becomes a page to read: told blank by its ink, turned upright, deskewed."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr2_core.engine import PageImage
from ocr2_core.ink import find_ink, ink_ratio, is_blank
from ocr2_core.rendering import RawPage
from ocr2_core.rotation import find_rotation, rotation_of_ink, turn
from ocr2_core.skew import find_skew, skew_of_ink

__all__ = ["BlankPage", "deskew", "find_rotation", "find_skew", "ink_ratio", "is_blank", "prepare", "turn"]

# less than a pixel over a word: resampling would cost more sharpness than it gains
MIN_SKEW_DEGREES = 0.1


@dataclass(frozen=True, slots=True)
class BlankPage:
    """A page without ink; its size in points."""

    page_index: int
    width_pt: float
    height_pt: float
    page_label: str | None = None


def prepare(page: RawPage) -> PageImage | BlankPage:
    """Turn and deskew a rendered page.

    `rotation_degrees` of the result is the clockwise turn from the page as stored, `skew_degrees` the clockwise tilt
    that was removed afterwards, as in PageBlocks: a box found in the result maps onto the upright page by
    `geometry.to_upright_page`. A page with a sound text layer is taken as it is, for its lines fit it exactly. Raises
    ValueError for a page that was not rendered.
    """
    if page.image is None:
        raise ValueError(f"page {page.page_index + 1} was not rendered")
    if page.text_lines is not None:
        return _page_image(page, page.image, page.rotation_degrees, 0.0)
    gray = _to_gray(page.image)
    ink = find_ink(gray, page.dpi)
    if not len(ink.boxes):
        height, width = gray.shape
        return BlankPage(page.page_index, width * 72 / page.dpi, height * 72 / page.dpi, page.page_label)
    rotation_degrees = rotation_of_ink(gray, ink)
    image = page.image
    if rotation_degrees:
        image = turn(image, rotation_degrees)
        ink = find_ink(_to_gray(image), page.dpi)
    rotation_degrees = (page.rotation_degrees + rotation_degrees) % 360
    skew_degrees = skew_of_ink(ink)
    if abs(skew_degrees) < MIN_SKEW_DEGREES:
        return _page_image(page, image, rotation_degrees, 0.0)
    return _page_image(page, deskew(image, skew_degrees), rotation_degrees, skew_degrees)


def deskew(image: NDArray[np.uint8], skew_degrees: float) -> NDArray[np.uint8]:
    """Turn the image anticlockwise by `skew_degrees` about its centre; size kept, corners filled white."""
    height, width = image.shape[:2]
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), skew_degrees, 1.0)
    white = (255, 255, 255)
    straight = cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_CUBIC, borderValue=white)
    return np.asarray(straight, dtype=np.uint8)


def _to_gray(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if image.ndim == 2:
        return image
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def _page_image(page: RawPage, image: NDArray[np.uint8], rotation_degrees: int, skew_degrees: float) -> PageImage:
    return PageImage(
        page_index=page.page_index,
        image=image,
        dpi=page.dpi,
        rotation_degrees=rotation_degrees,
        skew_degrees=skew_degrees,
        page_label=page.page_label,
        text_lines=page.text_lines,
    )
