"""One training step's losses: what the model writes, where it looks, and what its vision tower sees.

*Writing*: cross-entropy of the next token. *Looking*: the pages' generator knows which visual token each output token
is read from, so one head of two layers is asked to look there (cross-entropy over the group's visual tokens). That
finds the alignment within minutes, and the turn of the page with it, which is one token in a hundred and would draw
hardly any gradient by itself. *Seeing*: see `characters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.models.unlimited_ocr.modeling_unlimited_ocr import apply_rotary_pos_emb

from ocr2_core.nano.architecture import PIXEL_MEAN, PIXEL_STD, VISUAL_TOKENS
from ocr2_core.nano.characters import CharacterHeads
from ocr2_core.nano.pages import NanoPage
from ocr2_core.nano.sequences import SequenceBatch
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.prefill import ATTENTION_KINDS

LOOKING_LAYERS = (1, 3)
_LOOKING_HEAD = 0
_LOOKING_WEIGHT = 0.3
_TURN_WEIGHT = 5.0


@dataclass(frozen=True, slots=True)
class Losses:
    """`total` is what is minimised; the others are for the log: losses, and shares of right characters (vision), right
    tokens (writing), right places (looking, last layer) and right places at page turns."""

    total: Tensor
    writing: float
    characters_right: float
    tokens_right: float
    places_right: float
    turns_right: float


def pixels_of(pages: Sequence[NanoPage]) -> Tensor:
    """(B, 3, side, side) as the model takes them."""
    images = torch.from_numpy(np.stack([page.image for page in pages]))[:, None].float() / 255
    return ((images - PIXEL_MEAN) / PIXEL_STD).expand(-1, 3, -1, -1).contiguous()


class Reader:
    """A model in training, with hooks on what the losses need: the neck's output, two layers' queries and keys."""

    def __init__(self, model: SrSwaOcrModel, heads: CharacterHeads) -> None:
        self.model, self.heads = model, heads
        self._seen: dict[str, Any] = {}
        model.model.vision_tower.sam_encoder.neck.register_forward_hook(self._keep("neck"))
        for layer in LOOKING_LAYERS:
            attention = model.model.language_model.layers[layer].self_attn
            attention.q_proj.register_forward_hook(self._keep(f"q{layer}"))
            attention.k_proj.register_forward_hook(self._keep(f"k{layer}"))

    def encode(self, pages: Sequence[NanoPage]) -> tuple[Tensor, Tensor, float]:
        """Visual tokens (B, 21, hidden size), the seeing loss, and the share of characters it gets right."""
        features = torch.stack(list(self.model.get_image_features(pixels_of(pages)).pooler_output))
        loss, right = self.heads(features, self._seen["neck"], pages)
        return features, loss, right

    def losses(self, pages: Sequence[NanoPage], batch: SequenceBatch) -> Losses:
        """`pages`: of all sequences, one after the other."""
        features, seeing, characters_right = self.encode(pages)
        hidden = self.hidden_states(features, batch)
        has_loss = batch.labels >= 0
        logits = self.model.lm_head(hidden[has_loss]).float()
        labels = batch.labels[has_loss]
        writing = nn.functional.cross_entropy(logits, labels)
        looking, places_right, turns_right = self._looking(batch)
        tokens_right = float((logits.argmax(-1) == labels).float().mean())
        total = writing + seeing * 0.5 + looking * _LOOKING_WEIGHT
        return Losses(total, float(writing.detach()), characters_right, tokens_right, places_right, turns_right)

    def hidden_states(self, features: Tensor, batch: SequenceBatch) -> Tensor:
        """(S, T, hidden size) of the language model's last layer."""
        language_model = self.model.model.language_model
        embeddings = language_model.embed_tokens(batch.token_ids)
        count = len(batch.token_ids)
        visual = features.reshape(count, -1, features.shape[-1]).to(embeddings.dtype)
        embeddings = torch.cat((embeddings[:, :1], visual, embeddings[:, 1 + visual.shape[1] :]), dim=1)
        positions = torch.arange(batch.token_ids.shape[1])[None]
        hidden: Tensor = language_model(
            inputs_embeds=embeddings,
            position_ids=positions,
            attention_mask=dict.fromkeys(ATTENTION_KINDS, batch.mask),
            use_cache=False,
        ).last_hidden_state
        return hidden

    def _looking(self, batch: SequenceBatch) -> tuple[Tensor, float, float]:
        has_target = batch.targets >= 0
        targets, turns = batch.targets[has_target], batch.turns[has_target]
        weight = 1 + turns * (_TURN_WEIGHT - 1)
        loss = torch.zeros(())
        right = torch.zeros(len(targets), dtype=torch.bool)
        positions = torch.arange(batch.token_ids.shape[1])[None]
        for layer in LOOKING_LAYERS:
            query, key = self._rotated(layer, positions)
            key = key[:, 1 : batch.reference_count - 1]
            scores = (query @ key.transpose(1, 2)).float() * query.shape[-1] ** -0.5
            scores = scores[has_target]
            each = nn.functional.cross_entropy(scores, targets, reduction="none")
            loss = loss + (each * weight).sum() / weight.sum()
            right = scores.detach().argmax(-1) == targets
        turns_right = float(right[turns].float().mean()) if turns.any() else 1.0
        return loss, float(right.float().mean()), turns_right

    def _rotated(self, layer: int, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Query and key of the looking head, (S, T, head size), as the attention sees them."""
        text: Any = self.model.text_config
        size = text.head_dim
        first = _LOOKING_HEAD * size
        query, key = (self._seen[f"{part}{layer}"][..., first : first + size] for part in "qk")
        cos, sin = self.model.model.language_model.rotary_emb(query, position_ids=positions)
        query, key = apply_rotary_pos_emb(query[:, None], key[:, None], cos, sin)
        return query[:, 0], key[:, 0]

    def _keep(self, name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Tensor) -> None:
            self._seen[name] = output

        return hook


def page_targets(batch: SequenceBatch) -> Tensor:
    """(S, T): place of the page that the next token is read from, -1 for none."""
    return torch.where(batch.targets >= 0, batch.targets // VISUAL_TOKENS, batch.targets)
