"""Prefill through transformers' own modules: new tokens attend causally to what is cached and to themselves, and their
keys and values go straight into the block pool and the kept columns. No second cache exists beside the pool.

Order is told by position alone: a query sees the keys at its own and smaller positions. That is what makes a carried
group one prefill: BOS (right before the kept pages), the new pages (behind them) and the prompt, in one go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ocr2_core.ocr2.block_pool import BlockPool
from ocr2_core.ocr2.local_cache import LocalCache

ATTENTION_KINDS = ("reference_sliding_attention", "full_attention")


@dataclass(frozen=True, slots=True)
class TokenPlaces:
    """Where n tokens stand: `positions` (n,); `pool_columns` (n,) their places in the pool, -1 for kept tokens;
    `kept_columns` (n,) their places among the kept columns, -1 for tokens in blocks."""

    positions: Tensor
    pool_columns: Tensor
    kept_columns: Tensor

    def part(self, first: int, end: int) -> TokenPlaces:
        """The tokens [first, end)."""
        return TokenPlaces(self.positions[first:end], self.pool_columns[first:end], self.kept_columns[first:end])

    def __add__(self, other: TokenPlaces) -> TokenPlaces:
        return TokenPlaces(
            torch.cat((self.positions, other.positions)),
            torch.cat((self.pool_columns, other.pool_columns)),
            torch.cat((self.kept_columns, other.kept_columns)),
        )


class PrefillCache:
    """What transformers' attention modules see as their cache while one chunk is prefilled."""

    def __init__(self, pool: BlockPool, local: LocalCache, slot: int, cached: TokenPlaces, chunk: TokenPlaces) -> None:
        self._pool, self._local, self._slot = pool, local, slot
        self._in_blocks = (chunk.pool_columns >= 0).nonzero().flatten()
        self._block_columns = chunk.pool_columns[self._in_blocks]
        self._kept = (chunk.kept_columns >= 0).nonzero().flatten()
        self._kept_columns = chunk.kept_columns[self._kept]
        self._cached_block_columns = cached.pool_columns[cached.pool_columns >= 0]
        self._cached_kept_columns = cached.kept_columns[cached.kept_columns >= 0]
        self.mask: Tensor | None = None
        if len(cached.positions):
            in_blocks = cached.pool_columns >= 0
            keys = torch.cat((cached.positions[in_blocks], cached.positions[~in_blocks], chunk.positions))
            self.mask = (keys <= chunk.positions[:, None])[None, None]

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store the chunk's keys and values (1, heads, n, head size); returns those of all tokens cached so far."""
        self._pool.write(layer_idx, self._block_columns, keys[0, :, self._in_blocks], values[0, :, self._in_blocks])
        self._local.write_kept(
            layer_idx, self._slot, self._kept_columns, keys[0, :, self._kept], values[0, :, self._kept]
        )
        if self.mask is None:
            return keys, values
        cached = []
        for blocks, kept, new in (
            (self._pool.flat_keys(layer_idx), self._local.kept_keys(layer_idx), keys),
            (self._pool.flat_values(layer_idx), self._local.kept_values(layer_idx), values),
        ):
            parts = (blocks[:, self._cached_block_columns], kept[self._slot][:, self._cached_kept_columns], new[0])
            cached.append(torch.cat(parts, dim=1)[None])
        return cached[0], cached[1]


def prefill(
    language_model: Any,
    embeddings: Tensor,
    places: TokenPlaces,
    cached: TokenPlaces,
    *,
    pool: BlockPool,
    local: LocalCache,
    slot: int,
    chunk_tokens: int,
) -> Tensor:
    """Run `embeddings` (n, hidden size) through the language model in chunks of at most `chunk_tokens`; `cached` are
    the tokens already in the cache that they may see. Returns the last token's hidden state (hidden size,)."""
    hidden = embeddings
    for first in range(0, len(embeddings), chunk_tokens):
        chunk = places.part(first, first + chunk_tokens)
        cache = PrefillCache(pool, local, slot, cached, chunk)
        hidden = language_model(
            inputs_embeds=embeddings[None, first : first + chunk_tokens],
            position_ids=chunk.positions[None],
            attention_mask=dict.fromkeys(ATTENTION_KINDS, cache.mask),
            cache=cache,
            use_cache=True,
        ).last_hidden_state[0]
        cached = cached + chunk
    return hidden[-1]
