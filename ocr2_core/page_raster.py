"""What the child process makes of one page, and the rules both file kinds share. Runs in the child."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

from ocr2_core.limits import Limits

POINTS_PER_INCH = 72.0


class PageUnreadable(Exception):
    """One page cannot be rendered; the other pages of the file are not affected."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(slots=True)
class PageRaster:
    """Pixels of a page as bytes, row by row: `channels` 1 (gray) or 3 (RGB), 8 bits each.

    `notes` travels to the parent as it stands: text lines, warnings, the turn already applied. `owner` is the object
    whose memory `pixels` looks into, kept alive with it.
    """

    width_px: int
    height_px: int
    channels: int
    dpi: float
    pixels: bytes | memoryview
    notes: dict[str, Any] = field(default_factory=dict)
    owner: object = None


class PageFile(Protocol):
    """An open file of pages."""

    def describe(self) -> dict[str, Any]:
        """The fields of FileInspection that need parsing. Raises SourceRefused."""
        ...

    def render(self, page_index: int) -> PageRaster:
        """One page. Raises PageUnreadable."""
        ...


def choose_dpi(width_inch: float, height_inch: float, wanted_dpi: float, limits: Limits) -> float:
    """The resolution nearest below `wanted_dpi` at which the page fits `max_page_pixels`.

    Raises PageUnreadable (`pixel_bomb`) when even `min_dpi` gives too many pixels.
    """
    area = width_inch * height_inch
    if not math.isfinite(area) or area <= 0:
        raise PageUnreadable("damaged", f"the page has no usable size ({width_inch:g} by {height_inch:g} inches)")
    dpi = min(wanted_dpi, math.floor(math.sqrt(limits.max_page_pixels / area)))
    if dpi < min(limits.min_dpi, wanted_dpi):
        raise PageUnreadable(
            "pixel_bomb",
            f"the page measures {width_inch:.0f} by {height_inch:.0f} inches: at {limits.min_dpi} dpi, the least "
            f"allowed, it has more than max_page_pixels ({limits.max_page_pixels:,})",
        )
    return dpi
