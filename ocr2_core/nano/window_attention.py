"""R-SWA attention over whole training sequences, at the cost of the pairs that attend and not of the square.

Reference tokens see those before them; output tokens see the whole reference and the last `WINDOW_TOKENS` output
tokens, their own included. Outputs are cut into blocks of one window, whose queries meet the keys of this block and of
the one before: eight pages cost a third of what a masked square does on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from ocr2_core.nano.architecture import WINDOW_TOKENS

ATTENTION_NAME = "nano_training"
# below this many outputs the square is smaller than the blocks
_LEAST_OUTPUTS = 4 * WINDOW_TOKENS


def window_attention(query: Tensor, key: Tensor, value: Tensor, reference_count: int, scaling: float) -> Tensor:
    """(S, H, T, D) each → (S, H, T, D)."""
    count = query.shape[2]
    if count - reference_count < _LEAST_OUTPUTS:
        return _square(query, key, value, window_mask(count, reference_count), scaling)
    first_query, first_key, first_value = (part[:, :, :reference_count] for part in (query, key, value))
    mask = window_mask(reference_count, reference_count)
    reference = _square(first_query, first_key, first_value, mask, scaling)
    return torch.cat((reference, _outputs(query, key, value, reference_count, scaling)), dim=2)


def window_mask(count: int, reference_count: int) -> Tensor:
    """(T, T) bool: which keys each token sees."""
    index = torch.arange(count)
    is_near = index[None] > index[:, None] - WINDOW_TOKENS
    return (index[None] <= index[:, None]) & ((index < reference_count)[None] | is_near)


def _square(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float) -> Tensor:
    # on a CPU a third of the time that torch's own function takes with a mask
    scores = (query @ key.transpose(2, 3)).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores * scaling, dim=-1).to(value.dtype) @ value


def _outputs(query: Tensor, key: Tensor, value: Tensor, reference_count: int, scaling: float) -> Tensor:
    sequences, heads, count, size = query.shape
    output_count = count - reference_count
    block_count = -(-output_count // WINDOW_TOKENS)
    padding = block_count * WINDOW_TOKENS - output_count
    blocks = nn.functional.pad(query[:, :, reference_count:], (0, 0, 0, padding))
    near_keys, near_values = (_near(part[:, :, reference_count:], padding) for part in (key, value))
    far_keys, far_values = key[:, :, :reference_count], value[:, :, :reference_count]
    blocked = blocks.view(sequences, heads, block_count, WINDOW_TOKENS, size)
    far = (blocks @ far_keys.transpose(2, 3)).view(sequences, heads, block_count, WINDOW_TOKENS, reference_count)
    near = (blocked @ near_keys.transpose(3, 4)).masked_fill(~_near_mask(block_count), float("-inf"))
    weights = torch.softmax(torch.cat((far, near), dim=-1) * scaling, dim=-1).to(value.dtype)
    from_near = weights[..., reference_count:] @ near_values
    from_far = weights[..., :reference_count].reshape(sequences, heads, -1, reference_count) @ far_values
    both = from_far + from_near.reshape(sequences, heads, -1, size)
    return both[:, :, :output_count]


def _near(outputs: Tensor, padding: int) -> Tensor:
    """(S, H, outputs, D) → (S, H, blocks, 2 windows, D): each block behind the one before it."""
    padded = nn.functional.pad(outputs, (0, 0, WINDOW_TOKENS, padding))
    return padded.unfold(2, 2 * WINDOW_TOKENS, WINDOW_TOKENS).transpose(3, 4)


def _near_mask(block_count: int) -> Tensor:
    """(blocks, window, 2 windows) bool; before the first output there is nothing."""
    row, column = torch.arange(WINDOW_TOKENS)[:, None], torch.arange(2 * WINDOW_TOKENS)[None]
    mask = ((column > row) & (column <= row + WINDOW_TOKENS)).expand(block_count, -1, -1).clone()
    mask[0, :, :WINDOW_TOKENS] = False
    return mask


def _forward(
    _: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, *, scaling: float, **__: Any
) -> tuple[Tensor, None]:
    # what the model hands on as its mask is the number of reference tokens
    output = window_attention(query, key, value, int(attention_mask), scaling)
    return output.transpose(1, 2), None


AttentionInterface.register(ATTENTION_NAME, _forward)
