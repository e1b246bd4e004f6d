"""What every decode step of a sequence attends to besides its selected blocks: the ring of last output tokens and the
kept tokens (BOS, prompt, page separators); and, where no kernel reads blocks in place, the copies of selected blocks.

One row ("slot") a sequence, one pair of tensors a layer, (slots, key/value heads, columns, head size), with the columns

    [0, window)                  ring: output token i lies in column i % window
    [window, window + kept)      kept tokens, BOS first, then the prompt, then separators
    [window + kept, used)        copies of the selected blocks
    [used, columns)              unused, zero

so that a step attends to one contiguous range. `bias` (slots, columns) is 0 where a column is attended and -inf where
not. `selected` (slots, blocks) holds the numbers of the selected blocks, 0 in unused places. Storage grows to the
largest need and is then reused.
"""

from __future__ import annotations

import torch
from torch import Tensor

MASKED = float("-inf")


class LocalCache:
    """Rings, kept tokens and selected copies of all open sequences."""

    def __init__(
        self,
        *,
        layers: int,
        key_heads: int,
        head_size: int,
        window: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.window = window
        self.device = device
        empty = (0, key_heads, window, head_size)
        self.keys = [torch.zeros(empty, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros(empty, dtype=dtype, device=device) for _ in range(layers)]
        self.bias = [torch.full((0, window), MASKED, dtype=dtype, device=device) for _ in range(layers)]
        self.selected = [torch.zeros((0, 0), dtype=torch.int64, device=device) for _ in range(layers)]

    @property
    def columns(self) -> int:
        """Columns of storage, a slot."""
        return self.bias[0].shape[1]

    @property
    def slots(self) -> int:
        """Rows of storage."""
        return self.bias[0].shape[0]

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        return sum(tensor.element_size() * tensor.shape[1] * tensor.shape[3] for tensor in (*self.keys, *self.values))

    @property
    def storage_bytes(self) -> int:
        """Bytes of all rows and columns, used or not."""
        return sum(tensor.untyped_storage().nbytes() for tensor in (*self.keys, *self.values))

    def reserve(self, slots: int, columns: int, blocks: int) -> None:
        """Make room for this many rows, columns and selected blocks; what is stored stays."""
        slots, columns = max(slots, self.slots), max(columns, self.columns)
        blocks = max(blocks, self.selected[0].shape[1])
        for layer in range(len(self.keys)):
            heads, width = self.keys[layer].shape[1], self.keys[layer].shape[3]
            self.keys[layer] = _grown(self.keys[layer], (slots, heads, columns, width), 0)
            self.values[layer] = _grown(self.values[layer], (slots, heads, columns, width), 0)
            self.bias[layer] = _grown(self.bias[layer], (slots, columns), MASKED)
            self.selected[layer] = _grown(self.selected[layer], (slots, blocks), 0)

    def clear(self, slot: int) -> None:
        """Forget everything in a row."""
        for tensor in (*self.keys, *self.values):
            tensor[slot] = 0
        for bias in self.bias:
            bias[slot] = MASKED
        for selected in self.selected:
            selected[slot] = 0

    def write_kept(self, layer: int, slot: int, kept_columns: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store kept tokens of one layer. `kept_columns` (n,) count from the first kept column; `keys`, `values`
        (heads, n, head size)."""
        self.keys[layer][slot][:, kept_columns + self.window] = keys
        self.values[layer][slot][:, kept_columns + self.window] = values

    def kept_keys(self, layer: int) -> Tensor:
        """All columns from the first kept one on: a view (slots, heads, columns - window, head size)."""
        return self.keys[layer][:, :, self.window :]

    def kept_values(self, layer: int) -> Tensor:
        """As `kept_keys`."""
        return self.values[layer][:, :, self.window :]

    def drop_kept(self, slot: int, column: int, last: int) -> None:
        """Remove a kept token: the one in kept column `last` takes the place of `column`, and `last` becomes empty."""
        column, last = column + self.window, last + self.window
        for tensor in (*self.keys, *self.values):
            tensor[slot, :, column] = tensor[slot, :, last]
            tensor[slot, :, last] = 0

    def open_columns(self, slot: int, ring_count: int, kept_count: int) -> None:
        """Reset a row's mask: ring and kept columns that hold tokens are attended, the rest is not and is emptied."""
        first_free = self.window + kept_count
        for bias in self.bias:
            bias[slot] = MASKED
            bias[slot, :ring_count] = 0
            bias[slot, self.window : first_free] = 0
        for tensor in (*self.keys, *self.values):
            tensor[slot, :, first_free:] = 0

    def turn_ring(self, slot: int, cosine: Tensor, sine: Tensor) -> None:
        """Rotate the ring's keys of a row by the same angles (see `turn_keys`)."""
        for keys in self.keys:
            ring = keys[slot, :, : self.window]
            ring.copy_(turn_keys(ring, cosine, sine))


def _grown(old: Tensor, shape: tuple[int, ...], fill: float) -> Tensor:
    if tuple(old.shape) == shape:
        return old
    new = torch.full(shape, fill, dtype=old.dtype, device=old.device)
    new[tuple(slice(length) for length in old.shape)] = old
    return new


def turn_keys(keys: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn rotated keys (..., head size) on by the angles whose cosines and sines (head size,) are given, in fp32."""
    wide = keys.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * cosine + torch.cat((-second, first), dim=-1) * sine).to(keys.dtype)


def turn_angles(inverse_frequencies: Tensor, distance: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (head size,) in fp32 of a turn by `distance` positions; angles are formed in fp64."""
    angles = inverse_frequencies.double() * distance
    angles = torch.cat((angles, angles))
    return angles.cos().float(), angles.sin().float()
