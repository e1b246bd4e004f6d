"""A model in training, looked into: the vision tower's neck, and queries and keys of the language model's layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.models.unlimited_ocr.modeling_unlimited_ocr import apply_rotary_pos_emb

from ocr2_core.nano.architecture import PIXEL_MEAN, PIXEL_STD
from ocr2_core.nano.pages import NanoPage
from ocr2_core.nano.sequences import SequenceBatch
from ocr2_core.nano.window_attention import ATTENTION_NAME
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.prefill import ATTENTION_KINDS


def pixels_of(pages: Sequence[NanoPage]) -> Tensor:
    """(B, 3, side, side) as the model takes them."""
    images = torch.from_numpy(np.stack([page.image for page in pages]))[:, None].float() / 255
    return ((images - PIXEL_MEAN) / PIXEL_STD).expand(-1, 3, -1, -1).contiguous()


class ObservedModel:
    """Forward passes over pages and sequences, keeping what the last one of each kind went through in `layers`."""

    def __init__(self, model: SrSwaOcrModel, layers: Iterable[int]) -> None:
        self.model = model
        self._seen: dict[str, Tensor] = {}
        model.model.language_model.config._attn_implementation = ATTENTION_NAME
        model.model.vision_tower.sam_encoder.neck.register_forward_hook(self._keep("neck"))
        for layer in layers:
            attention = model.model.language_model.layers[layer].self_attn
            attention.q_proj.register_forward_hook(self._keep(f"query {layer}"))
            attention.k_proj.register_forward_hook(self._keep(f"key {layer}"))

    @property
    def neck(self) -> Tensor:
        """The neck's output for the pages encoded last, (B, channels, side, side)."""
        return self._seen["neck"]

    def encode(self, pages: Sequence[NanoPage]) -> Tensor:
        """Visual tokens of the pages, (B, VISUAL_TOKENS, hidden size)."""
        return torch.stack(list(self.model.get_image_features(pixels_of(pages)).pooler_output))

    def hidden_states(self, features: Tensor, batch: SequenceBatch) -> Tensor:
        """What the language model makes of the sequences, (S, T, hidden size). `features`: the visual tokens of all
        their pages, one after the other."""
        language_model = self.model.model.language_model
        embeddings = language_model.embed_tokens(batch.token_ids)
        visual = features.reshape(len(batch.token_ids), -1, features.shape[-1]).to(embeddings.dtype)
        embeddings = torch.cat((embeddings[:, :1], visual, embeddings[:, 1 + visual.shape[1] :]), dim=1)
        hidden: Tensor = language_model(
            inputs_embeds=embeddings,
            position_ids=_positions(batch),
            attention_mask=dict.fromkeys(ATTENTION_KINDS, batch.reference_count),
            use_cache=False,
        ).last_hidden_state
        return hidden

    def rotated(self, layer: int, batch: SequenceBatch) -> tuple[Tensor, Tensor]:
        """The last pass's queries and keys of a layer as its attention sees them, each (S, heads, T, head size)."""
        size = int(self.model.text_config.head_dim or 0)
        query, key = (
            self._seen[f"{part} {layer}"].view(*batch.token_ids.shape, -1, size).transpose(1, 2)
            for part in ("query", "key")
        )
        cos, sin = self.model.model.language_model.rotary_emb(query, position_ids=_positions(batch))
        rotated: tuple[Tensor, Tensor] = apply_rotary_pos_emb(query, key, cos, sin)
        return rotated

    def _keep(self, name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Tensor) -> None:
            self._seen[name] = output

        return hook


def _positions(batch: SequenceBatch) -> Tensor:
    return torch.arange(batch.token_ids.shape[1])[None]
