"""SR-SWA attention of one decode step and one layer: each query attends to its selected blocks, its kept tokens and its
ring of last output tokens.

Two forms live here: `sr_swa_attention_reference`, plain PyTorch in fp32 straight from the pool, whose signature every
kernel shares (`triton_decode.sr_swa_attention_triton` has the same arguments and meaning); and `attend_gathered`, the
fast path on CPUs, over a buffer to which the selected blocks were copied when the selection was last refreshed.

Arguments of the shared signature (B sequences of this step, H query heads, Hkv key/value heads with H a multiple of
Hkv and query head h reading key/value head h // (H // Hkv), D head size, N blocks of the pool, Tb tokens a block, S
columns of the selection, C sequence slots, K kept columns, W window):

- `queries` (B, H, D), rotated.
- `key_blocks`, `value_blocks` (Hkv, N, Tb, D): this layer of the pool; keys are rotated. May be strided, last dimension
  contiguous.
- `selected_blocks` (B, S) int64: block numbers. Entries at or beyond `selected_counts` are 0, the pool's null block.
- `selected_counts` (B,) int32.
- `block_lengths` (N,) int32: tokens held by each block; columns beyond are masked. The null block has 0.
- `kept_keys`, `kept_values` (C, Hkv, K, D), `kept_counts` (B,) int32: BOS, prompt and page separators. Strided views.
- `ring_keys`, `ring_values` (C, Hkv, W, D), `ring_counts` (B,) int32: the last output tokens, the current one included,
  in columns [0, count) in any order. Strided views.
- `slots` (B,) int64: the row in [0, C) of each sequence of the step in the kept and ring tensors.
- `scale`: factor on the scores, 1/√D.

Returns (B, H, D) in the dtype of `queries`. Softmax in fp32.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def sr_swa_attention_reference(
    queries: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    selected_blocks: Tensor,
    selected_counts: Tensor,
    block_lengths: Tensor,
    kept_keys: Tensor,
    kept_values: Tensor,
    kept_counts: Tensor,
    ring_keys: Tensor,
    ring_values: Tensor,
    ring_counts: Tensor,
    slots: Tensor,
    scale: float,
) -> Tensor:
    """See the module's description. One sequence after the other, in fp32: made to be right, not fast."""
    outputs = []
    for row, (slot, selected, kept, ring) in enumerate(
        zip(slots.tolist(), selected_counts.tolist(), kept_counts.tolist(), ring_counts.tolist(), strict=True)
    ):
        blocks = selected_blocks[row, :selected]
        held = torch.arange(key_blocks.shape[2], device=blocks.device) < block_lengths[blocks, None]
        keys = torch.cat(
            (key_blocks[:, blocks][:, held], kept_keys[slot, :, :kept], ring_keys[slot, :, :ring]), dim=1
        ).float()
        values = torch.cat(
            (value_blocks[:, blocks][:, held], kept_values[slot, :, :kept], ring_values[slot, :, :ring]), dim=1
        ).float()
        query = queries[row].float().view(keys.shape[0], -1, queries.shape[-1])
        weights = torch.softmax(query @ keys.transpose(1, 2) * scale, dim=-1)
        outputs.append((weights @ values).view(queries.shape[1:]))
    return torch.stack(outputs).to(queries.dtype)


def attend_gathered(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """Attend over columns laid side by side. `queries` (B, H, D), `keys` and `values` (B, Hkv, T, D), `bias` (B, T):
    0 where a column is attended, -inf where not; None when all are. Masked columns must hold finite numbers.

    Returns (B, H, D).
    """
    batch, heads, width = queries.shape
    key_heads = keys.shape[1]
    # Query heads that share a key head stand in the query's length: no key is repeated, no head is copied.
    grouped = queries.reshape(batch, key_heads, heads // key_heads, width)
    mask = None if bias is None else bias[:, None, None, :]
    return functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scale).reshape(
        batch, heads, width
    )
