"""Train the SR-SWA gates of a model that reads, its own weights held fixed.

Both gates start as the parameter-free ones (identity projections), so training can be seen to help or not.

*Page gate*: the generator knows the page that each output token is read from. A page's score is the best of its blocks'
scores, as in `page_gate`; the loss is the cross-entropy of the scores, normalised over pages, with that page.
*Token selector*: distilled from the attention it stands in for. The target is the mass that the full attention of that
layer, all heads together, puts on each block of visual tokens; the loss is the Kullback-Leibler divergence of the
selector's block scores from it.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ocr2_core.nano.architecture import VISUAL_TOKENS
from ocr2_core.nano.observed_model import ObservedModel
from ocr2_core.nano.pages import draw_document
from ocr2_core.nano.reading_loss import page_targets
from ocr2_core.nano.sequences import SequenceBatch, build_batch
from ocr2_core.nano.vocabulary import write_page
from ocr2_core.ocr2.gates import save_gates
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.page_layout import page_layout

BLOCK_TOKENS = 8
_GATES = ("page_gate", "token_selector")
_GROUPS_A_STEP = 2
# documents that no stage of `train` draws
_FIRST_SEED = 900_000_000
_SMALLEST = 1e-8

logger = logging.getLogger(__name__)


class GateTraining:
    """Projections of every layer and gate, and the losses over groups of pages."""

    def __init__(self, model: SrSwaOcrModel, block_tokens: int = BLOCK_TOKENS) -> None:
        text: Any = model.text_config
        self.layers, self.heads, self.size = text.num_hidden_layers, text.num_attention_heads, text.head_dim
        self._layout = page_layout(VISUAL_TOKENS, block_tokens=block_tokens)
        identity = torch.eye(self.size).expand(self.heads, -1, -1)
        self.projections = nn.ParameterDict(
            {
                self._name(layer, gate, part): nn.Parameter(identity.clone())
                for layer in range(self.layers)
                for gate in _GATES
                for part in ("query", "key")
            }
        )
        self._observed = ObservedModel(model, range(self.layers))

    def losses(self, seed: int, page_count: int) -> tuple[Tensor, Tensor]:
        """(page gate's, token selector's) mean loss over layers and output tokens of two random groups."""
        rng = random.Random(f"gates {seed}")
        documents = [
            list(draw_document(_FIRST_SEED + seed * _GROUPS_A_STEP + number, page_count, split="train"))
            for number in range(_GROUPS_A_STEP)
        ]
        batch = build_batch([[write_page(page) for page in document] for document in documents], rng)
        with torch.no_grad():
            features = self._observed.encode(list(itertools.chain.from_iterable(documents)))
            self._observed.hidden_states(features, batch)
        page_losses, block_losses = [], []
        for layer in range(self.layers):
            page_loss, block_loss = self._layer_losses(layer, batch, page_count)
            page_losses.append(page_loss)
            block_losses.append(block_loss)
        return torch.stack(page_losses).mean(), torch.stack(block_losses).mean()

    def save(self, folder: Path) -> None:
        """Write the gate file that `load_model` looks for."""
        save_gates(folder, {_dotted(name): value.detach().half() for name, value in self.projections.items()})

    def _layer_losses(self, layer: int, batch: SequenceBatch, page_count: int) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            queries, keys = self._observed.rotated(layer, batch)
            masses = self._block_masses(queries, keys, batch, page_count)
            summaries = self._summaries(keys, page_count)
        pages = page_targets(batch)
        chosen = pages >= 0
        by_page = self._scores(layer, "page_gate", queries, summaries)
        by_page = by_page.view(*by_page.shape[:2], page_count, -1).amax(-1)[chosen]
        share = by_page / by_page.sum(-1, keepdim=True)
        page_loss = nn.functional.nll_loss(share.clamp_min(_SMALLEST).log(), pages[chosen])
        by_block = self._scores(layer, "token_selector", queries, summaries)[chosen] / self.heads
        target = masses[chosen]
        block_loss = nn.functional.kl_div(by_block.clamp_min(_SMALLEST).log(), target, reduction="batchmean")
        return page_loss, block_loss

    def _scores(self, layer: int, gate: str, queries: Tensor, summaries: Tensor) -> Tensor:
        """Block scores (S, T, blocks): softmax a head over the blocks, summed over heads."""
        query_proj, key_proj = (self.projections[self._name(layer, gate, part)] for part in ("query", "key"))
        projected = torch.einsum("shtd,hde->shte", queries, query_proj)
        keys = torch.einsum("shbd,hde->shbe", summaries, key_proj)
        return torch.softmax(projected @ keys.transpose(2, 3) * self.size**-0.5, dim=-1).sum(dim=1)

    def _block_masses(self, queries: Tensor, keys: Tensor, batch: SequenceBatch, page_count: int) -> Tensor:
        """(S, T, blocks): the attention's mass on each block, normalised over blocks."""
        scores = queries @ keys.transpose(2, 3) * self.size**-0.5
        weights = torch.softmax(scores.masked_fill(~batch.mask, float("-inf")), dim=-1).mean(dim=1)
        by_block = [weights[..., block].sum(-1) for block in self._block_columns(page_count)]
        masses = torch.stack(by_block, dim=-1)
        return masses / masses.sum(-1, keepdim=True).clamp_min(_SMALLEST)

    def _summaries(self, keys: Tensor, page_count: int) -> Tensor:
        """(S, H, blocks, D): mean keys."""
        return torch.stack([keys[:, :, block].mean(2) for block in self._block_columns(page_count)], dim=2)

    def _block_columns(self, page_count: int) -> list[list[int]]:
        """Columns of each block's tokens in the sequence, page by page."""
        lengths = self._layout.block_lengths
        ends = list(itertools.accumulate(lengths))
        blocks = [self._layout.stream[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        firsts = [1 + place * VISUAL_TOKENS for place in range(page_count)]
        return [[first + offset for offset in block] for first in firsts for block in blocks]

    @staticmethod
    def _name(layer: int, gate: str, part: str) -> str:
        # a ParameterDict takes no dots
        return f"layers/{layer}/{gate}/{part}_proj"


def train_gates(model: SrSwaOcrModel, folder: Path, *, steps: int, group_sizes: Sequence[int] = (4, 8)) -> None:
    """Train and write the gates of the checkpoint in `folder`."""
    training = GateTraining(model)
    optimiser = torch.optim.AdamW(training.projections.parameters(), lr=2e-3, weight_decay=0.0)
    for step in range(steps):
        page_loss, block_loss = training.losses(step, group_sizes[step % len(group_sizes)])
        optimiser.zero_grad()
        (page_loss + block_loss).backward()  # type: ignore[no-untyped-call]
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        optimiser.step()
        if step % 10 == 0:
            logger.info("gates %d of %d: page %.4f, blocks %.4f", step, steps, page_loss.item(), block_loss.item())
    training.save(folder)


def _dotted(name: str) -> str:
    return name.replace("/", ".")
