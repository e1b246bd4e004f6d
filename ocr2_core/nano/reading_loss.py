"""One training step's losses: what the model writes, where it looks, and what its vision tower sees.

*Writing*: cross-entropy of the next token. *Looking*: the pages' generator knows which visual token each output token
is read from, so one head of two layers is asked to look there (cross-entropy over the group's visual tokens). That
finds the alignment within minutes, and the turn of the page with it, which is one token in a hundred and would draw
hardly any gradient by itself. *Seeing*: see `characters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ocr2_core.nano.architecture import VISUAL_TOKENS
from ocr2_core.nano.characters import CharacterHeads
from ocr2_core.nano.observed_model import ObservedModel
from ocr2_core.nano.pages import NanoPage
from ocr2_core.nano.sequences import SequenceBatch
from ocr2_core.ocr2.model import SrSwaOcrModel

LOOKING_LAYERS = (1, 3)
_LOOKING_HEAD = 0
_SEEING_WEIGHT = 0.5
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


class Reader:
    """A model in training with the heads that its losses need."""

    def __init__(self, model: SrSwaOcrModel, heads: CharacterHeads) -> None:
        self.heads = heads
        self._observed = ObservedModel(model, LOOKING_LAYERS)

    def seeing_loss(self, pages: Sequence[NanoPage]) -> tuple[Tensor, float]:
        """The vision tower's loss alone, and the share of characters it gets right."""
        _, loss, right = self._encode(pages)
        return loss, right

    def losses(self, pages: Sequence[NanoPage], batch: SequenceBatch, looking_weight: float) -> Losses:
        """`pages`: of all sequences, one after the other. `looking_weight`: of that loss beside the one of writing."""
        features, seeing, characters_right = self._encode(pages)
        hidden = self._observed.hidden_states(features, batch)
        has_loss = batch.labels >= 0
        logits = self._observed.model.lm_head(hidden[has_loss]).float()
        labels = batch.labels[has_loss]
        writing = nn.functional.cross_entropy(logits, labels)
        looking, places_right, turns_right = self._looking(batch)
        tokens_right = float((logits.argmax(-1) == labels).float().mean())
        total = writing + seeing * _SEEING_WEIGHT + looking * looking_weight
        return Losses(total, float(writing.detach()), characters_right, tokens_right, places_right, turns_right)

    def _encode(self, pages: Sequence[NanoPage]) -> tuple[Tensor, Tensor, float]:
        features = self._observed.encode(pages)
        loss, right = self.heads(features, self._observed.neck, pages)
        return features, loss, right

    def _looking(self, batch: SequenceBatch) -> tuple[Tensor, float, float]:
        has_target = batch.targets >= 0
        targets, turns = batch.targets[has_target], batch.turns[has_target]
        weight = 1 + turns * (_TURN_WEIGHT - 1)
        loss = torch.zeros(())
        right = torch.zeros(len(targets), dtype=torch.bool)
        for layer in LOOKING_LAYERS:
            queries, keys = self._observed.rotated(layer, batch)
            query, key = queries[:, _LOOKING_HEAD], keys[:, _LOOKING_HEAD, 1 : batch.reference_count - 1]
            scores = (query @ key.transpose(1, 2)).float() * query.shape[-1] ** -0.5
            scores = scores[has_target]
            each = nn.functional.cross_entropy(scores, targets, reduction="none")
            loss = loss + (each * weight).sum() / weight.sum()
            right = scores.detach().argmax(-1) == targets
        turns_right = float(right[turns].float().mean()) if turns.any() else 1.0
        return loss, float(right.float().mean()), turns_right


def page_targets(batch: SequenceBatch) -> Tensor:
    """(S, T): place of the page that the next token is read from, -1 for none."""
    return torch.where(batch.targets >= 0, batch.targets // VISUAL_TOKENS, batch.targets)
