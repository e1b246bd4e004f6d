"""Small random checkpoints of transformers' own `unlimited_ocr` classes, with weights that make attention matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.models.unlimited_ocr.configuration_unlimited_ocr import UnlimitedOcrConfig
from transformers.models.unlimited_ocr.modeling_unlimited_ocr import UnlimitedOcrForConditionalGeneration

from ocr2_core.ocr2.model import SrSwaOcrModel, load_model
from ocr2_core.ocr2.model_decoder import DecoderSettings, ModelDecoder
from ocr2_core.ocr2.page_decoder import EncodedPage
from ocr2_core.ocr2.selection import SelectionSettings

torch.set_num_threads(1)

IMAGE_TOKEN, BOS, EOS, PAGE = 3, 0, 1, 2
VOCABULARY = 96


def small_config(
    *, window: int = 128, layers: int = 3, dense_layers: int = 1, key_heads: int = 4, heads: int = 4
) -> UnlimitedOcrConfig:
    sam = {
        "hidden_size": 32,
        "output_channels": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 128,
        "patch_size": 8,
        "window_size": 4,
        "global_attn_indexes": [1],
        "mlp_dim": 64,
        "downsample_channels": [24, 32],
        "initializer_range": 0.02,
    }
    clip = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    }
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "mlp_layer_types": ["dense"] * dense_layers + ["sparse"] * (layers - dense_layers),
        "sliding_window": window,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }
    return UnlimitedOcrConfig(
        vision_config={"sam_config": sam, "encoder_config": clip}, text_config=text, image_token_id=IMAGE_TOKEN
    )


def save_checkpoint(folder: Path, config: UnlimitedOcrConfig, seed: int = 0) -> Path:
    """Drawn with a standard deviation of 1/√fan-in, queries and keys larger, so that attention is far from even."""
    torch.manual_seed(seed)
    model: Any = UnlimitedOcrForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_tokens" in name or "image_newline" in name or "view_separator" in name:
                weight.normal_(0, 1)
            elif weight.dim() >= 2:
                weight.normal_(0, (2.0 if "q_proj" in name or "k_proj" in name else 1.0) * weight.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dense and two expert layers, window 128."""
    return save_checkpoint(tmp_path_factory.mktemp("checkpoint"), small_config())


@pytest.fixture(scope="session")
def model(checkpoint: Path) -> SrSwaOcrModel:
    return load_model(checkpoint)


@pytest.fixture(scope="session")
def small_window_model(tmp_path_factory: pytest.TempPathFactory) -> SrSwaOcrModel:
    """Window 8."""
    return load_model(save_checkpoint(tmp_path_factory.mktemp("window8"), small_config(window=8)))


def random_pages(
    count: int, side: int = 16, *, first: int = 0, seed: int = 1, hidden_size: int = 64
) -> list[EncodedPage]:
    """Pages of side · (side + 1) + 1 visual tokens; a page's content depends on its index and the seed alone."""
    pages = []
    for index in range(first, first + count):
        generator = torch.Generator().manual_seed(seed * 10_007 + index)
        tokens = side * (side + 1) + 1
        pages.append(EncodedPage(index, tokens, torch.randn(tokens, hidden_size, generator=generator)))
    return pages


def random_tokens(count: int, seed: int = 5) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(4, VOCABULARY, count)]


def make_decoder(model: SrSwaOcrModel, **settings: Any) -> ModelDecoder:
    """Selects everything unless told otherwise."""
    kernel = settings.pop("kernel", "auto")
    values = {"pool_blocks": 400, "selection": SelectionSettings(block_budget=None), **settings}
    return ModelDecoder(model, DecoderSettings(**values), page_token_id=PAGE, kernel=kernel)


def feed(decoder: ModelDecoder, sequence: int, tokens: list[int]) -> NDArray[np.float32]:
    """Logits (tokens, V) after each token, fed to this sequence alone."""
    return np.stack([decoder.step({sequence: token})[sequence] for token in tokens])


def largest_difference(first: Any, second: Any) -> float:
    return float(np.abs(np.asarray(first) - np.asarray(second)).max())
