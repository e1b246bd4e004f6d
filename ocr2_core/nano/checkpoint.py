"""The nano model as a checkpoint in transformers' `unlimited_ocr` format: what `load_model` and the engine take."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers.models.unlimited_ocr.configuration_unlimited_ocr import UnlimitedOcrConfig

from ocr2_core.nano.architecture import PATCH_PX, PIXEL_MEAN, PIXEL_STD, nano_config
from ocr2_core.nano.pages import PAGE_SIDE_PX
from ocr2_core.nano.vocabulary import BOS, EOS, IMAGE, PAD, TOKEN_IDS, TOKENS, new_tokenizer
from ocr2_core.ocr2.model import SrSwaOcrModel

# larger than any page image: a page is never cut into tiles, which nano has not learnt to read
_NO_TILES_PX = 1 << 16


def configuration() -> UnlimitedOcrConfig:
    """Nano's configuration, with the ids of its vocabulary."""
    ids = {"pad": TOKEN_IDS[PAD], "bos": TOKEN_IDS[BOS], "eos": TOKEN_IDS[EOS], "image": TOKEN_IDS[IMAGE]}
    return nano_config(len(TOKENS), ids)


def export(weights: dict[str, torch.Tensor], folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write weights, configuration, tokenizer and image settings."""
    model = SrSwaOcrModel(configuration())
    model.load_state_dict(weights)
    folder.mkdir(parents=True, exist_ok=True)
    torch.nn.Module.to(model, dtype)
    model.save_pretrained(folder)
    new_tokenizer().save_pretrained(folder)
    images = {
        "size": {"height": PAGE_SIDE_PX, "width": PAGE_SIDE_PX},
        "tile_size": _NO_TILES_PX,
        "image_mean": [PIXEL_MEAN] * 3,
        "image_std": [PIXEL_STD] * 3,
        "background_color": [255, 255, 255],
        "resample": 3,
    }
    settings = {"image_processor": images, "patch_size": PATCH_PX, "downsample_ratio": 4}
    (folder / "processor_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
