"""The shared pool of KV blocks: fixed-size blocks for all sequences and layers, their free list and their summaries.

A block holds `block_tokens` tokens in every layer; one number names it in all layers. Blocks are one size, so nothing
fragments and a released block fits any request. Block 0 is the null block: never handed out, always empty and zero; it
fills the unused columns of block tables, so that gathers have fixed shapes.

Layout: keys and values (layers, key/value heads, blocks, block tokens, head size). Within a layer and head a block is
one contiguous tile, which a kernel loads at once, and gathering blocks into (heads, columns, head size) is a single
copy. Each block has a summary per layer, the mean of its keys, (layers, blocks, heads, head size): scoring neighbouring
blocks is one matrix product over contiguous memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ocr2_core.ocr2.errors import PoolExhausted
from ocr2_core.ocr2.page_layout import BLOCK_TOKENS


class BlockPool:
    """`block_count` usable blocks; storage is allocated once, here, and never grows.

    `zero_released` overwrites blocks with zeros when they come back (tests and debugging; nothing reads a released
    block either way).
    """

    def __init__(
        self,
        *,
        layers: int,
        key_heads: int,
        head_size: int,
        block_count: int,
        block_tokens: int = BLOCK_TOKENS,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        zero_released: bool = False,
    ) -> None:
        if block_count < 1:
            raise ValueError(f"a pool needs at least one block, got {block_count}")
        shape = (layers, key_heads, block_count + 1, block_tokens, head_size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.summaries = torch.zeros((layers, shape[2], key_heads, head_size), dtype=dtype, device=device)
        self.block_lengths = torch.zeros(block_count + 1, dtype=torch.int32, device=device)
        self.block_count = block_count
        self.block_tokens = block_tokens
        self.zero_released = zero_released
        self._free = list(range(1, block_count + 1))
        self._used: set[int] = set()

    @property
    def free_count(self) -> int:
        """Blocks that can be handed out now."""
        return len(self._free)

    @property
    def used_count(self) -> int:
        """Blocks in use."""
        return len(self._used)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block's keys and values over all layers, from the tensors themselves."""
        return int(self.keys[:, :, 0].nbytes + self.values[:, :, 0].nbytes)

    @property
    def summary_bytes(self) -> int:
        """Bytes of one block's summaries over all layers."""
        return int(self.summaries[:, 0].nbytes)

    @property
    def storage_bytes(self) -> int:
        """Bytes of the keys and values of all blocks, used, free and null."""
        return self.keys.untyped_storage().nbytes() + self.values.untyped_storage().nbytes()

    def allocate(self, lengths: Sequence[int]) -> list[int]:
        """Hand out one block for each of `lengths` (tokens it will hold), lowest numbers first.

        Raises PoolExhausted, with nothing allocated, when fewer are free.
        """
        if len(lengths) > len(self._free):
            raise PoolExhausted(len(lengths), len(self._free), self.block_count)
        blocks, self._free = self._free[: len(lengths)], self._free[len(lengths) :]
        self._used.update(blocks)
        if blocks:
            index = torch.tensor(blocks, device=self.keys.device)
            self.block_lengths[index] = torch.tensor(lengths, dtype=torch.int32, device=self.keys.device)
            partial = [block for block, length in zip(blocks, lengths, strict=True) if length < self.block_tokens]
            self._zero(partial)
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        """Take blocks back. Raises ValueError for a block that is not in use (nothing is released then)."""
        if len(set(blocks)) != len(blocks) or not self._used.issuperset(blocks):
            raise ValueError(
                f"blocks {sorted(set(blocks) - self._used) or sorted(blocks)} are not in use, or named twice"
            )
        self._used.difference_update(blocks)
        self._free = sorted([*self._free, *blocks])
        if blocks:
            self.block_lengths[torch.tensor(blocks, device=self.keys.device)] = 0
            if self.zero_released:
                self._zero(blocks)

    def write(self, layer: int, columns: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store tokens in one layer. `columns` (n,): block · block_tokens + place in the block; `keys`, `values`
        (heads, n, head size), keys rotated."""
        self.flat_keys(layer)[:, columns] = keys
        self.flat_values(layer)[:, columns] = values

    def flat_keys(self, layer: int) -> Tensor:
        """This layer's keys as (heads, blocks · block_tokens, head size): a view."""
        return self.keys[layer].flatten(1, 2)

    def flat_values(self, layer: int) -> Tensor:
        """This layer's values as (heads, blocks · block_tokens, head size): a view."""
        return self.values[layer].flatten(1, 2)

    def summarise(self, blocks: Sequence[int]) -> None:
        """Set the summaries of these blocks to the means of the keys they hold, in every layer."""
        if not blocks:
            return
        index = torch.tensor(blocks, device=self.keys.device)
        lengths = self.block_lengths[index].clamp(min=1).view(-1, 1, 1)
        for layer in range(self.keys.shape[0]):
            # Columns beyond a partial block's length are zero, so the sum needs no mask.
            sums = self.keys[layer][:, index].sum(dim=2, dtype=torch.float32)
            self.summaries[layer, index] = (sums.transpose(0, 1) / lengths).to(self.summaries.dtype)

    def _zero(self, blocks: Sequence[int]) -> None:
        if blocks:
            index = torch.tensor(blocks, device=self.keys.device)
            self.keys[:, :, index] = 0
            self.values[:, :, index] = 0
            self.summaries[:, index] = 0
