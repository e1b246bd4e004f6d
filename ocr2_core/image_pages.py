"""Pages of an image file: TIFF with many pages, PNG, JPEG, decoded by Pillow. Runs in the child process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from ocr2_core.errors import SourceRefused
from ocr2_core.limits import Limits
from ocr2_core.media_type import MediaType
from ocr2_core.page_raster import PageRaster, PageUnreadable, choose_dpi

_FORMATS: dict[str, str] = {"image/tiff": "TIFF", "image/png": "PNG", "image/jpeg": "JPEG"}
_A4_LONG_SIDE_INCH = 11.69
_BYTES_PER_PIXEL = {"1": 1, "L": 1, "P": 1, "LA": 4, "PA": 4, "I;16": 2, "I;16B": 2, "I;16L": 2, "F": 4, "I": 4}
# everything Pillow raises on hostile input that is not the end of the process
_DECODE_ERRORS = (OSError, ValueError, SyntaxError, TypeError, KeyError, IndexError, EOFError, OverflowError)


class ImagePages:
    """One image file; every frame of a TIFF is a page, PNG and JPEG have one."""

    def __init__(self, path: Path, limits: Limits, media_type: MediaType, *, colour: bool = False) -> None:
        # our own limits apply, and they tell a large page from a bomb
        Image.MAX_IMAGE_PIXELS = None
        self._limits = limits
        self._colour = colour
        self._media_type = media_type
        try:
            self._image = Image.open(path, formats=(_FORMATS[media_type],))
        except _DECODE_ERRORS as error:
            raise SourceRefused(
                "damaged",
                f"The {_FORMATS[media_type]} file is damaged: its header cannot be read.",
                "Upload it again, or open it in a viewer and save it anew.",
            ) from error

    def describe(self) -> dict[str, Any]:
        page_count = self._count_pages()
        if page_count > self._limits.max_page_count:
            raise SourceRefused(
                "too_many_pages",
                f"The TIFF has {page_count:,} pages; the limit max_page_count is {self._limits.max_page_count:,}.",
                "Split the file, or raise the limit.",
            )
        first_trouble: PageUnreadable | None = None
        for page_index in range(page_count):
            try:
                self._seek(page_index)
                self._plan()
                break
            except PageUnreadable as trouble:
                first_trouble = first_trouble or trouble
        else:
            assert first_trouble is not None
            raise SourceRefused(
                first_trouble.code,
                f"No page of the file can be decoded; page 1: {first_trouble.reason}.",
                "Save it anew at a lower resolution, or raise the limit named here.",
            )
        return {"page_count": page_count}

    def _count_pages(self) -> int:
        if self._media_type != "image/tiff":
            return 1
        try:
            return int(getattr(self._image, "n_frames", 1))
        except _DECODE_ERRORS as error:
            raise SourceRefused(
                "damaged", "The TIFF's list of pages is damaged.", "Open it in a viewer and save it anew."
            ) from error

    def render(self, page_index: int) -> PageRaster:
        self._seek(page_index)
        dpi_x, dpi_y, dpi = self._plan()
        image = self._image
        stored_size = image.size
        try:
            if self._media_type == "image/jpeg":
                # lets the JPEG decoder itself halve a much too fine scan: less time and memory
                image.draft(None, (math.ceil(image.width * dpi / dpi_x), math.ceil(image.height * dpi / dpi_y)))
            turned = ImageOps.exif_transpose(image)
            plain = _to_rgb(turned) if self._colour else _to_gray(turned)
        except _DECODE_ERRORS as error:
            raise PageUnreadable("damaged", f"the image cannot be decoded: {str(error)[:200]}") from error
        width_inch, height_inch = stored_size[0] / dpi_x, stored_size[1] / dpi_y
        if _is_transposed(image, turned):
            width_inch, height_inch = height_inch, width_inch
        size = (max(1, round(width_inch * dpi)), max(1, round(height_inch * dpi)))
        if size != plain.size:
            plain = plain.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
        channels = 3 if self._colour else 1
        return PageRaster(plain.width, plain.height, channels, dpi, plain.tobytes())

    def _seek(self, page_index: int) -> None:
        try:
            self._image.seek(page_index)
        except _DECODE_ERRORS as error:
            raise PageUnreadable("damaged", f"the page cannot be found in the file: {str(error)[:200]}") from error

    def _plan(self) -> tuple[float, float, float]:
        """Stored resolution along both axes, and the one to deliver. Raises PageUnreadable (`pixel_bomb`)."""
        image = self._image
        if image.width <= 0 or image.height <= 0:
            raise PageUnreadable("damaged", "the image has no pixels")
        decoded_bytes = image.width * image.height * _BYTES_PER_PIXEL.get(image.mode, 4)
        # decoding needs the pixels once and converting them needs a second copy
        if decoded_bytes > self._limits.memory_limit_bytes // 2:
            raise PageUnreadable(
                "pixel_bomb",
                f"the image has {image.width:,} by {image.height:,} pixels, more than can be decoded within "
                f"memory_limit_bytes ({self._limits.memory_limit_bytes:,})",
            )
        dpi_x, dpi_y = _stored_dpi(image)
        wanted = min(max(dpi_x, dpi_y), float(self._limits.dpi))
        return dpi_x, dpi_y, choose_dpi(image.width / dpi_x, image.height / dpi_y, wanted, self._limits)


def _stored_dpi(image: Image.Image) -> tuple[float, float]:
    """The file's own resolution where it makes sense for a sheet of paper; otherwise as if the sheet were A4."""
    try:
        dpi_x, dpi_y = (float(value) for value in image.info.get("dpi", (0, 0)))
    except (TypeError, ValueError, ZeroDivisionError):
        dpi_x = dpi_y = 0.0
    if _is_sane(dpi_x, dpi_y, image.size):
        return dpi_x, dpi_y
    assumed = max(image.size) / _A4_LONG_SIDE_INCH
    return assumed, assumed


def _is_sane(dpi_x: float, dpi_y: float, size: tuple[int, int]) -> bool:
    lowest, highest = sorted((dpi_x, dpi_y))
    if not (math.isfinite(highest) and lowest >= 60 and highest <= 2400 and highest / lowest <= 4):
        return False
    long_side_inch = max(size[0] / dpi_x, size[1] / dpi_y)
    # 72 and 96 are what cameras and screen grabbers write without thinking: believe them for a plausible sheet only
    return 6 <= long_side_inch <= 18 if highest < 100 else 1.5 <= long_side_inch <= 60


def _is_transposed(stored: Image.Image, turned: Image.Image) -> bool:
    return stored.width != stored.height and (stored.width > stored.height) != (turned.width > turned.height)


def _to_gray(image: Image.Image) -> Image.Image:
    if image.mode in ("1", "L"):
        return image.convert("L")
    if image.mode.startswith(("I", "F")):
        return _from_deep_pixels(image)
    return _to_rgb(image).convert("L")


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        return _from_deep_pixels(image).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        layered = image.convert("RGBA")
        paper = Image.new("RGBA", layered.size, "white")
        return Image.alpha_composite(paper, layered).convert("RGB")
    return image.convert("RGB")


def _from_deep_pixels(image: Image.Image) -> Image.Image:
    """16-bit, 32-bit and float pixels to 8 bits; 12-bit scans in 16-bit files keep their contrast."""
    values = np.asarray(image)
    highest = float(values.max(initial=0))
    if values.dtype.kind == "f":
        top = 1.0 if highest <= 1.0 else highest
    else:
        top = next(float(2**bits - 1) for bits in (8, 12, 16, 32) if highest <= 2**bits - 1)
    scaled = np.clip(values * np.float32(255.0 / top), 0, 255)
    return Image.fromarray(scaled.astype(np.uint8))
