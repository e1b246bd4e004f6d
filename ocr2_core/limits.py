"""How much a source file may ask of us before it is refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Bounds on a source file and on the child process that parses it.

    `max_page_pixels` is the largest raster of a page: larger pages are rendered at less than `dpi`, down to `min_dpi`,
    and fail below that. `memory_limit_bytes` is what the child may allocate on top of its own libraries;
    `render_timeout_s` holds for one page, `inspect_timeout_s` for opening a file and looking through it.
    """

    model_config = ConfigDict(frozen=True)

    max_file_bytes: int = Field(default=2 * 1024**3, gt=0)
    max_page_count: int = Field(default=5000, gt=0)
    max_page_pixels: int = Field(default=100_000_000, gt=0)
    dpi: int = Field(default=200, ge=36, le=1200)
    min_dpi: int = Field(default=72, ge=36, le=1200)
    render_timeout_s: float = Field(default=60.0, gt=0)
    inspect_timeout_s: float = Field(default=120.0, gt=0)
    memory_limit_bytes: int = Field(default=1024**3, ge=64 * 1024**2)
