"""Page images → the pixel tensors a checkpoint was trained on, and how many visual tokens they become. No torchvision.

Two modes, as the model family knows them. BASE: the page alone, scaled to fit a square (1024 px) and padded in gray;
the mode of multi-page parsing. GUNDAM: the same view plus tiles (640 px) of the page stretched to the tile grid whose
shape is nearest its own; for single pages that need more detail.

Resizing works on 8-bit pixels with an antialiased bicubic filter in fixed-point arithmetic, as transformers' own image
processor of this model does (`image_processing_unlimited_ocr`), so that the tensors are the same to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ocr2_core.errors import EngineError

CONFIG_FILES = ("processor_config.json", "preprocessor_config.json")

_BICUBIC = 3  # Pillow's number of the filter, which the files use


class ImageMode(StrEnum):
    BASE = "base"
    GUNDAM = "gundam"


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """What a checkpoint expects of its images; the defaults are those of `baidu/Unlimited-OCR`.

    `stretch_up_to_px`: pages in base mode are stretched to the square, not padded, where it is no larger than this.
    `patch_px` times `downsample` is the side of the square of pixels that becomes one visual token.
    """

    page_side_px: int = 1024
    tile_side_px: int = 640
    min_tiles: int = 2
    max_tiles: int = 32
    stretch_up_to_px: int = 640
    background: tuple[int, int, int] = (127, 127, 127)
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    patch_px: int = 16
    downsample: int = 4

    @classmethod
    def from_checkpoint(cls, folder: Path) -> ImageSettings:
        """The settings saved beside the weights; the defaults where the checkpoint brings no such file.

        Raises EngineError for a file that cannot be used.
        """
        settings: dict[str, Any] = {}
        for name in reversed(CONFIG_FILES):
            path = folder / name
            if not path.is_file():
                continue
            try:
                settings.update(_known_settings(json.loads(path.read_text(encoding="utf-8"))))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise EngineError(f"{path} cannot be used: {error}. Fetch the checkpoint's own file again.") from error
        return cls(**settings)

    def tokens_a_side(self, side_px: int) -> int:
        """Visual tokens along one side of a square of `side_px` pixels."""
        return -(-(side_px // self.patch_px) // self.downsample)


@dataclass(frozen=True, slots=True)
class PagePixels:
    """One page as the vision encoder takes it.

    `page`: (3, side, side) float32, the whole page. `tiles`: (tile_count, 3, tile_side, tile_side) float32, row by row,
    or None. `grid`: (columns, rows) of tiles, (1, 1) without tiles. `token_count`: visual tokens of the page, its
    newlines and separator included. `row_lengths`: visual tokens of each row, its newline not counted: first the
    rows of the tiles, then those of the whole page.
    """

    page: torch.Tensor
    tiles: torch.Tensor | None
    grid: tuple[int, int]
    token_count: int
    row_lengths: tuple[int, ...]


def prepare_page(
    image: NDArray[np.uint8], mode: ImageMode = ImageMode.BASE, settings: ImageSettings | None = None
) -> PagePixels:
    """Pixels of one page. `image` is uint8, (height, width) gray or (height, width, 3) RGB, of any size.

    Raises ValueError for anything else.
    """
    settings = settings or ImageSettings()
    pixels = _as_channels(image)
    height, width = pixels.shape[-2:]
    tiles, grid = None, (1, 1)
    if mode is ImageMode.GUNDAM and max(height, width) > settings.tile_side_px:
        grid = tile_grid(height, width, settings)
        tiles = _normalise(_cut_tiles(pixels, grid, settings.tile_side_px), settings)
    return PagePixels(
        page=_normalise(_fit_page(pixels, mode, settings)[None], settings)[0],
        tiles=tiles,
        grid=grid,
        token_count=visual_token_count(height, width, mode, settings),
        row_lengths=_row_lengths(None if tiles is None else grid, settings),
    )


def visual_token_count(
    height_px: int, width_px: int, mode: ImageMode = ImageMode.BASE, settings: ImageSettings | None = None
) -> int:
    """Visual tokens of a page of this size: rows of tokens, a newline after each, one separator; tiles come on top."""
    settings = settings or ImageSettings()
    is_tiled = mode is ImageMode.GUNDAM and max(height_px, width_px) > settings.tile_side_px
    rows = _row_lengths(tile_grid(height_px, width_px, settings) if is_tiled else None, settings)
    return sum(rows) + len(rows) + 1


def _row_lengths(grid: tuple[int, int] | None, settings: ImageSettings) -> tuple[int, ...]:
    side = settings.tokens_a_side(settings.page_side_px)
    rows = (side,) * side
    if grid is None:
        return rows
    columns, tile_rows = grid
    side = settings.tokens_a_side(settings.tile_side_px)
    return (columns * side,) * (tile_rows * side) + rows


def model_inputs(pages: Sequence[PagePixels]) -> dict[str, Any]:
    """Arguments of the model's `get_image_features` for these pages, with and without tiles mixed as they come."""
    inputs: dict[str, Any] = {
        "pixel_values": torch.stack([page.page for page in pages]),
        "num_local_patches": [0 if page.tiles is None else len(page.tiles) for page in pages],
        "patches_grid": [list(page.grid) for page in pages],
    }
    tiles = [page.tiles for page in pages if page.tiles is not None]
    if tiles:
        inputs["pixel_values_local"] = torch.cat(tiles)
    return inputs


def tile_grid(height_px: int, width_px: int, settings: ImageSettings) -> tuple[int, int]:
    """(columns, rows) of the tile grid nearest in shape to the page.

    Of two grids equally near, the larger wins while the page has more than half its pixels (InternVL's rule, which the
    checkpoints were trained with).
    """
    aspect = width_px / height_px
    best, least = (1, 1), float("inf")
    for columns, rows in _grids(settings.min_tiles, settings.max_tiles):
        difference = abs(aspect - columns / rows)
        is_filled = height_px * width_px > 0.5 * settings.tile_side_px**2 * columns * rows
        if difference < least or (difference == least and is_filled):
            best, least = (columns, rows), difference
    return best


@lru_cache(maxsize=8)
def _grids(min_tiles: int, max_tiles: int) -> list[tuple[int, int]]:
    sides = range(1, max_tiles + 1)
    grids = [(columns, rows) for columns in sides for rows in sides if min_tiles <= columns * rows <= max_tiles]
    return sorted(grids, key=lambda grid: grid[0] * grid[1])


def _as_channels(image: NDArray[np.uint8]) -> torch.Tensor:
    """(1 or 3, height, width), uint8; gray pages stay one channel until they are normalised."""
    is_page = image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)
    if image.dtype != np.uint8 or not is_page or 0 in image.shape:
        raise ValueError(
            f"a page image is uint8 of (height, width) or (height, width, 3), not {image.dtype} of {image.shape}"
        )
    pixels = torch.from_numpy(np.array(image, copy=None if image.flags.writeable else True, order="C"))
    return pixels[None] if image.ndim == 2 else pixels.permute(2, 0, 1)


def _fit_page(pixels: torch.Tensor, mode: ImageMode, settings: ImageSettings) -> torch.Tensor:
    """The page in its square: (channels, side, side)."""
    height, width = pixels.shape[-2:]
    side = settings.page_side_px
    if mode is ImageMode.BASE and side <= settings.stretch_up_to_px:
        return _resize(pixels, side, side)
    scale = side / max(height, width)
    page = _resize(pixels, max(round(height * scale), 1), max(round(width * scale), 1))
    is_gray_padding = len(set(settings.background)) == 1
    if not is_gray_padding:
        page = page.expand(3, -1, -1)
    height, width = page.shape[-2:]
    background = torch.tensor(settings.background[: len(page)], dtype=torch.uint8)
    square = background[:, None, None].repeat(1, side, side)
    top, left = (side - height) // 2, (side - width) // 2
    square[:, top : top + height, left : left + width] = page
    return square


def _cut_tiles(pixels: torch.Tensor, grid: tuple[int, int], side: int) -> torch.Tensor:
    """(tile_count, channels, side, side), row by row, of the page stretched over the grid."""
    columns, rows = grid
    page = _resize(pixels, rows * side, columns * side)
    tiles = page.reshape(len(page), rows, side, columns, side)
    return tiles.permute(1, 3, 0, 2, 4).reshape(rows * columns, len(page), side, side)


def _resize(pixels: torch.Tensor, height: int, width: int) -> torch.Tensor:
    if pixels.shape[-2:] == (height, width):
        return pixels
    return torch.nn.functional.interpolate(
        pixels[None], size=(height, width), mode="bicubic", align_corners=False, antialias=True
    )[0]


def _normalise(pixels: torch.Tensor, settings: ImageSettings) -> torch.Tensor:
    """uint8 (count, channels, side, side) → float32 (count, 3, side, side)."""
    mean = torch.tensor(settings.mean)[:, None, None] * 255.0
    std = torch.tensor(settings.std)[:, None, None] * 255.0
    return (pixels.to(torch.float32) - mean) / std


def _known_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of ImageSettings that a processor's or image processor's JSON file gives."""
    image = config.get("image_processor") or config
    if image.get("resample", _BICUBIC) != _BICUBIC:
        raise ValueError(f"resample is {image['resample']}; only {_BICUBIC} (bicubic) is supported")
    found: dict[str, Any] = {}
    names = {"tile_size": "tile_side_px", "min_patches": "min_tiles", "max_patches": "max_tiles"}
    names |= {"maximum_pad_value": "stretch_up_to_px"}
    for theirs, ours in names.items():
        if image.get(theirs) is not None:
            found[ours] = int(image[theirs])
    size = image.get("size")
    if size is not None:
        found["page_side_px"] = int(size if isinstance(size, int) else max(size["height"], size["width"]))
    if image.get("background_color") is not None:
        found["background"] = tuple(int(value) for value in image["background_color"])
    for theirs, ours in (("image_mean", "mean"), ("image_std", "std")):
        if image.get(theirs) is not None:
            found[ours] = tuple(float(value) for value in image[theirs])
    for theirs, ours in (("patch_size", "patch_px"), ("downsample_ratio", "downsample")):
        if isinstance(config.get(theirs), int):
            found[ours] = config[theirs]
    return found
