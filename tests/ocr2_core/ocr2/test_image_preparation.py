"""Page images as the checkpoint expects them.

The literal pixels and sums were taken from transformers' own image processor of this model (5.24, with torchvision),
which the last test runs beside ours wherever torchvision is installed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from ocr2_core.errors import EngineError
from ocr2_core.ocr2.image_preparation import (
    ImageMode,
    ImageSettings,
    model_inputs,
    prepare_page,
    tile_grid,
    visual_token_count,
)

SMALL = ImageSettings(page_side_px=128, tile_side_px=64, stretch_up_to_px=64, background=(10, 20, 30))


def ramp(height: int, width: int) -> NDArray[np.uint8]:
    """Gray values that wrap round, so that any shift or resampling error shows."""
    return (np.add.outer(np.arange(height) * 2, np.arange(width)) % 256).astype(np.uint8)


def noise(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(7).integers(0, 256, size=shape).astype(np.uint8)


def levels(pixels: torch.Tensor) -> torch.Tensor:
    """Back from −1..1 to gray levels."""
    return pixels * 127.5 + 127.5


@pytest.mark.parametrize(
    ("height", "width", "base", "gundam"),
    [
        (2200, 1700, 273, 1513),
        (3507, 2480, 273, 2733),
        (2480, 3507, 273, 1503),
        (1755, 1240, 273, 903),
        (1024, 1024, 273, 693),
        (500, 2000, 273, 683),
        (640, 640, 273, 273),
        (641, 10, 273, 3793),
    ],
)
def test_visual_tokens_of_common_pages(height: int, width: int, base: int, gundam: int) -> None:
    assert visual_token_count(height, width, ImageMode.BASE) == base
    assert visual_token_count(height, width, ImageMode.GUNDAM) == gundam


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((2200, 1700), (3, 4)),
        ((3507, 2480), (4, 6)),
        ((2480, 3507), (4, 3)),
        ((1024, 1024), (2, 2)),
        ((3000, 3000), (5, 5)),
        ((500, 2000), (4, 1)),
        ((641, 10), (1, 32)),
    ],
)
def test_tile_grid_is_that_of_the_checkpoints_processor(size: tuple[int, int], grid: tuple[int, int]) -> None:
    assert tile_grid(*size, ImageSettings()) == grid


def test_rows_of_tiles_come_before_those_of_the_page() -> None:
    assert prepare_page(noise(1755, 1240)).row_lengths == (16,) * 16
    assert prepare_page(noise(1755, 1240), ImageMode.GUNDAM).row_lengths == (20,) * 30 + (16,) * 16


def test_page_is_centred_on_gray_and_normalised() -> None:
    page = prepare_page(np.full((1000, 500), 255, np.uint8)).page
    assert page.shape == (3, 1024, 1024)
    assert page.dtype == torch.float32
    assert page[:, :, 256:768].unique().tolist() == [1.0]
    assert page[:, :, :256].unique().tolist() == pytest.approx([-0.5 / 127.5])
    assert page[:, :, 768:].unique().tolist() == pytest.approx([-0.5 / 127.5])


def test_pixels_equal_those_of_the_checkpoints_processor() -> None:
    prepared = prepare_page(ramp(90, 60), ImageMode.GUNDAM, SMALL)
    page, tiles = levels(prepared.page), prepared.tiles
    assert tiles is not None
    assert [round(float(page[at]), 3) for at in ((0, 0, 0), (1, 64, 0), (2, 64, 127))] == [10.0, 20.0, 30.0]
    assert [round(float(page[at]), 3) for at in ((0, 0, 22), (0, 64, 64), (0, 127, 105))] == [0.0, 120.0, 237.0]
    assert prepared.grid == (2, 3)
    assert tiles.shape == (6, 3, 64, 64)
    places = ((0, 0, 0, 0), (1, 0, 63, 63), (2, 0, 5, 7), (5, 0, 63, 63))
    assert [round(float(levels(tiles)[at]), 3) for at in places] == [0.0, 118.0, 67.0, 237.0]
    assert float(prepared.page.sum()) == pytest.approx(-16218.3535, abs=0.01)
    assert float(tiles.sum()) == pytest.approx(-5204.3296, abs=0.01)


def test_resizing_is_pillows_bicubic_to_one_gray_level() -> None:
    image = noise(700, 1400)
    ours = levels(prepare_page(image).page)[0, 256:768]
    pillow = np.asarray(Image.fromarray(image).resize((1024, 512), Image.Resampling.BICUBIC), dtype=np.float32)
    assert float((ours - torch.from_numpy(pillow.copy())).abs().max()) <= 1.0


def test_gray_and_rgb_of_the_same_page_are_equal() -> None:
    gray = noise(900, 700)
    rgb = np.stack([gray] * 3, axis=-1)
    for mode in ImageMode:
        one, other = prepare_page(gray, mode), prepare_page(rgb, mode)
        assert torch.equal(one.page, other.page)
        assert (one.tiles is None) == (mode is ImageMode.BASE)
        if one.tiles is not None and other.tiles is not None:
            assert torch.equal(one.tiles, other.tiles)


def test_image_is_left_as_it_was_and_may_be_read_only_or_strided() -> None:
    image = noise(300, 400, 3)
    before = image.copy()
    image.flags.writeable = False
    turned = prepare_page(image[:, ::-1])
    assert torch.equal(turned.page, prepare_page(np.ascontiguousarray(before[:, ::-1])).page)
    assert np.array_equal(image, before)


def test_small_squares_are_stretched_in_base_mode_only() -> None:
    settings = ImageSettings(page_side_px=64, tile_side_px=64, stretch_up_to_px=64)
    white = np.full((40, 20), 255, np.uint8)
    assert prepare_page(white, ImageMode.BASE, settings).page.unique().tolist() == [1.0]
    assert len(prepare_page(white, ImageMode.GUNDAM, settings).page.unique()) == 2
    assert prepare_page(white, ImageMode.BASE, settings).token_count == 3


def test_pages_with_and_without_tiles_go_into_one_call() -> None:
    pages = [prepare_page(noise(*size), ImageMode.GUNDAM) for size in ((1200, 900), (300, 200), (800, 1600))]
    inputs = model_inputs(pages)
    assert inputs["pixel_values"].shape == (3, 3, 1024, 1024)
    assert inputs["num_local_patches"] == [12, 0, 2]
    assert inputs["patches_grid"] == [[3, 4], [1, 1], [2, 1]]
    assert inputs["pixel_values_local"].shape == (14, 3, 640, 640)
    assert "pixel_values_local" not in model_inputs(pages[1:2])


@pytest.mark.parametrize(
    "image",
    [np.zeros((4, 4), np.float32), np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4), np.uint8), np.zeros(4, np.uint8)],
)
def test_anything_but_a_page_image_is_refused(image: NDArray[np.uint8]) -> None:
    with pytest.raises(ValueError, match="a page image is uint8"):
        prepare_page(image)


def test_settings_come_from_the_checkpoint(tmp_path: Path) -> None:
    assert ImageSettings.from_checkpoint(tmp_path) == ImageSettings()
    image = {"size": {"height": 128, "width": 128}, "tile_size": 64, "maximum_pad_value": 64, "max_patches": 9}
    image |= {"background_color": [10, 20, 30], "image_mean": [0.4, 0.5, 0.6], "resample": 3, "min_patches": 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"tile_size": 32}))
    (tmp_path / "processor_config.json").write_text(
        json.dumps({"image_processor": image, "patch_size": 8, "downsample_ratio": 2})
    )
    assert ImageSettings.from_checkpoint(tmp_path) == ImageSettings(
        page_side_px=128,
        tile_side_px=64,
        min_tiles=3,
        max_tiles=9,
        stretch_up_to_px=64,
        background=(10, 20, 30),
        mean=(0.4, 0.5, 0.6),
        patch_px=8,
        downsample=2,
    )


@pytest.mark.parametrize("text", ["{", '{"resample": 2}', '{"size": {"height": 4}}', "[]"])
def test_unusable_settings_name_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(EngineError, match=r"preprocessor_config\.json"):
        ImageSettings.from_checkpoint(tmp_path)


def test_equal_to_transformers_processor() -> None:
    pytest.importorskip("torchvision", exc_type=ImportError)
    from transformers.models.unlimited_ocr.image_processing_unlimited_ocr import UnlimitedOcrImageProcessor

    processor = UnlimitedOcrImageProcessor()
    for shape in ((1100, 850), (2480, 3507), (641, 10), (500, 2000, 3), (300, 400), (640, 640)):
        image = noise(*shape)
        channels = torch.from_numpy(image if image.ndim == 3 else np.stack([image] * 3, axis=-1)).permute(2, 0, 1)
        for mode in ImageMode:
            theirs = processor([channels], crop_to_patches=mode is ImageMode.GUNDAM, return_tensors="pt")
            ours = model_inputs([prepare_page(image, mode)])
            assert torch.equal(theirs["pixel_values"], ours["pixel_values"])
            assert theirs["num_local_patches"] == ours["num_local_patches"]
            assert [list(grid) for grid in theirs["patches_grid"]] == ours["patches_grid"]
            if "pixel_values_local" in ours:
                local = theirs["pixel_values_local"]
                assert torch.equal(torch.stack(list(local)), ours["pixel_values_local"])
