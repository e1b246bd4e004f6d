"""The sizes of an Unlimited-OCR checkpoint that its memory depends on, read from its config.json. Loads no torch."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ocr2_core.errors import EngineError
from ocr2_core.ocr2.page_layout import BLOCK_TOKENS

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class TextGeometry:
    """The language model. `dense_layers` of its `layers` have one MLP, the others experts."""

    vocabulary: int = 129_280
    hidden: int = 1280
    layers: int = 12
    dense_layers: int = 1
    heads: int = 10
    key_heads: int = 10
    head_size: int = 128
    dense_intermediate: int = 6848
    experts: int = 64
    shared_experts: int = 2
    experts_a_token: int = 6
    expert_intermediate: int = 896
    window_tokens: int = 128

    @property
    def parameter_count(self) -> int:
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.key_heads)
        experts = self.experts * (3 * self.expert_intermediate + 1) + 3 * self.shared_experts * self.expert_intermediate
        sparse_layers = self.layers - self.dense_layers
        mlps = self.dense_layers * 3 * self.dense_intermediate + sparse_layers * experts
        embeddings = 2 * self.vocabulary  # in and out
        return self.layers * attention + self.hidden * (embeddings + mlps + 2 * self.layers + 1)


@dataclass(frozen=True, slots=True)
class VisionGeometry:
    """The two encoders of a page: SAM's at `patch_px`, then, on its output downsampled 4 times, a CLIP encoder."""

    image_px: int = 1024
    patch_px: int = 16
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    intermediate: int = 3072
    window_patches: int = 14
    global_layers: int = 4
    neck: int = 256
    downsample: tuple[int, ...] = (512, 1024)
    clip_hidden: int = 1024
    clip_layers: int = 24
    clip_intermediate: int = 4096
    clip_image_px: int = 224
    clip_patch_px: int = 14

    @property
    def patches(self) -> int:
        """Patches of a page, each attending to all others in the global layers."""
        return (self.image_px // self.patch_px) ** 2

    @property
    def parameter_count(self) -> int:
        side = self.image_px // self.patch_px
        width, wide = self.hidden, self.intermediate
        layer = width * (4 * width + 2 * wide) + 4 * width + wide + width + 4 * width
        head_size = width // self.heads
        relative = self.global_layers * (2 * side - 1) + (self.layers - self.global_layers) * (
            2 * self.window_patches - 1
        )
        sam = side**2 * width + width * (3 * self.patch_px**2 + 1) + self.layers * layer + 2 * relative * head_size
        sam += self.neck * (width + 9 * self.neck + 4)
        channels = (self.neck, *self.downsample)
        sam += sum(9 * before * after for before, after in itertools.pairwise(channels))
        width, wide = self.clip_hidden, self.clip_intermediate
        layer = width * (4 * width + 2 * wide) + 4 * width + wide + width + 4 * width
        positions = (self.clip_image_px // self.clip_patch_px) ** 2 + 1
        return sam + self.clip_layers * layer + width * (positions + 3)


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """A checkpoint's sizes; the defaults are those of `baidu/Unlimited-OCR` in bfloat16.

    `weight_bytes` is None where the weights' files are not there to be measured.
    """

    text: TextGeometry = field(default_factory=TextGeometry)
    vision: VisionGeometry = field(default_factory=VisionGeometry)
    value_bytes: int = 2
    block_tokens: int = BLOCK_TOKENS
    weight_bytes: int | None = None

    @property
    def parameter_count(self) -> int:
        text = self.text.hidden
        projector = text * (self.vision.downsample[-1] + self.vision.clip_hidden + 1)
        return self.text.parameter_count + self.vision.parameter_count + projector + 2 * text

    @property
    def token_bytes(self) -> int:
        """Keys and values of one token, over all layers."""
        return 2 * self.text.layers * self.text.key_heads * self.text.head_size * self.value_bytes

    @property
    def page_tokens(self) -> int:
        """Visual tokens of a page in base mode: rows, a newline each, one separator."""
        side = -(-(self.vision.image_px // self.vision.patch_px) // 4)
        return side * (side + 1) + 1

    @property
    def page_index_bytes(self) -> int:
        """Summaries of a page's blocks: one key a block, over all layers."""
        return -(-(self.page_tokens - 1) // self.block_tokens) * self.token_bytes // 2

    @classmethod
    def from_checkpoint(cls, folder: Path) -> ModelGeometry:
        """Read a local checkpoint's config.json and the size of its safetensors files.

        Raises EngineError when the folder holds no configuration of this model family.
        """
        path = folder / "config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            if config["model_type"] not in ("unlimited_ocr", "unlimited-ocr"):
                raise ValueError(f"its model_type is {config['model_type']!r}, not 'unlimited_ocr'")
            text = config.get("text_config") or config.get("language_config") or {}
            dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16").removeprefix("torch.")
            weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
            return cls(
                text=_text(text, config.get("sliding_window")),
                vision=_vision(config.get("vision_config") or {}),
                value_bytes=_DTYPE_BYTES[dtype],
                weight_bytes=weights or None,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineError(
                f"{path} does not describe an Unlimited-OCR checkpoint ({type(error).__name__}: {error}). "
                "Give the folder of the checkpoint in transformers' format."
            ) from error


def _text(config: dict[str, Any], window: int | None) -> TextGeometry:
    usual = TextGeometry()
    hidden, heads = config.get("hidden_size", usual.hidden), config.get("num_attention_heads", usual.heads)
    layers = config.get("num_hidden_layers", usual.layers)
    kinds = config.get("mlp_layer_types")
    dense = kinds.count("dense") if kinds else min(config.get("first_k_dense_replace", 1), layers)
    return TextGeometry(
        vocabulary=config.get("vocab_size", usual.vocabulary),
        hidden=hidden,
        layers=layers,
        dense_layers=dense,
        heads=heads,
        key_heads=config.get("num_key_value_heads") or heads,
        head_size=hidden // heads,
        dense_intermediate=config.get("intermediate_size", usual.dense_intermediate),
        experts=config.get("n_routed_experts", usual.experts),
        shared_experts=config.get("n_shared_experts", usual.shared_experts),
        experts_a_token=config.get("num_experts_per_tok", usual.experts_a_token),
        expert_intermediate=config.get("moe_intermediate_size", usual.expert_intermediate),
        window_tokens=window or config.get("sliding_window") or usual.window_tokens,
    )


def _vision(config: dict[str, Any]) -> VisionGeometry:
    sam, clip = config.get("sam_config") or {}, config.get("encoder_config") or {}
    usual = VisionGeometry()
    return VisionGeometry(
        image_px=_side(sam.get("image_size", usual.image_px)),
        patch_px=_side(sam.get("patch_size", usual.patch_px)),
        hidden=sam.get("hidden_size", usual.hidden),
        layers=sam.get("num_hidden_layers", usual.layers),
        heads=sam.get("num_attention_heads", usual.heads),
        intermediate=sam.get("mlp_dim", usual.intermediate),
        window_patches=sam.get("window_size", usual.window_patches),
        global_layers=len(sam.get("global_attn_indexes", range(usual.global_layers))),
        neck=sam.get("output_channels", usual.neck),
        downsample=tuple(sam.get("downsample_channels", usual.downsample)),
        clip_hidden=clip.get("hidden_size", usual.clip_hidden),
        clip_layers=clip.get("num_hidden_layers", usual.clip_layers),
        clip_intermediate=clip.get("intermediate_size", usual.clip_intermediate),
        clip_image_px=_side(clip.get("image_size", usual.clip_image_px)),
        clip_patch_px=_side(clip.get("patch_size", usual.clip_patch_px)),
    )


def _side(value: int | list[int]) -> int:
    return value if isinstance(value, int) else max(value)
