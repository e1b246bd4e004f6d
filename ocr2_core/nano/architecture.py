"""The nano model: transformers' `unlimited_ocr` classes at small sizes, and weights drawn so that it can learn.

The classes' own initialisation never learns to read from nothing (SAM's `initializer_range` is 1e-10, and at 0.02 the
gradient still dies in the encoder), so every matrix is drawn with standard deviation 1/√fan-in; pixels are scaled to
-2..2, for LayerNorm of a blank page's zeros explodes.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.unlimited_ocr.configuration_unlimited_ocr import UnlimitedOcrConfig

from ocr2_core.nano.pages import PAGE_SIDE_PX
from ocr2_core.ocr2.model import SrSwaOcrModel

PATCH_PX = 8
TOKENS_A_SIDE = PAGE_SIDE_PX // PATCH_PX // 4
VISUAL_TOKENS = TOKENS_A_SIDE * (TOKENS_A_SIDE + 1) + 1
PIXEL_MEAN, PIXEL_STD = 0.5, 0.25
WINDOW_TOKENS = 128


def nano_config(vocabulary_size: int, special_ids: dict[str, int]) -> UnlimitedOcrConfig:
    """`special_ids`: ids of `pad`, `bos`, `eos` and `image`."""
    sam: dict[str, Any] = {
        "initializer_range": 0.02,
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "mlp_dim": 512,
        "image_size": PAGE_SIDE_PX,
        "patch_size": PATCH_PX,
        "window_size": 8,
        "global_attn_indexes": [],
        "use_rel_pos": False,
        "output_channels": 128,
        "downsample_channels": [192, 256],
    }
    encoder: dict[str, Any] = {
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": PAGE_SIDE_PX // 4,
        "patch_size": PATCH_PX,
    }
    text: dict[str, Any] = {
        "vocab_size": vocabulary_size,
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "sliding_window": WINDOW_TOKENS,
        "mlp_layer_types": ["dense"] * 5,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "max_position_embeddings": 32768,
        "pad_token_id": special_ids["pad"],
        "bos_token_id": special_ids["bos"],
        "eos_token_id": special_ids["eos"],
    }
    return UnlimitedOcrConfig(
        vision_config={"sam_config": sam, "encoder_config": encoder},
        text_config=text,
        image_token_id=special_ids["image"],
    )


def new_model(config: UnlimitedOcrConfig, seed: int) -> SrSwaOcrModel:
    """A model with fresh weights, in fp32."""
    torch.manual_seed(seed)
    model = SrSwaOcrModel(config)
    with torch.no_grad():
        model.model.vision_tower.sam_encoder.pos_embed.normal_(0, 0.3)
        for name, parameter in model.named_parameters():
            if "rel_pos" in name:
                parameter.normal_(0, 0.02)
            elif "embed_tokens" in name or "lm_head" in name:
                parameter.normal_(0, 0.05)
            elif parameter.dim() >= 2 and "pos" not in name and "embedding" not in name:
                parameter.normal_(0, parameter[0].numel() ** -0.5)
    return model
