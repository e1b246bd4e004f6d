"""SR-SWA attention of a decode step on GPUs: Triton kernels behind `sr_swa_attention_reference`'s signature."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from ocr2_core.ocr2.errors import DecoderError

# columns a program reads: 64 of head size 128 in bfloat16 take 78 registers a thread, without spilling
TILE_COLUMNS = 64
JOIN_STEP = 16


def kernel_for(device: torch.device | str) -> Callable[..., Tensor] | None:
    """The kernel where it runs (a CUDA device and triton installed), None elsewhere: then blocks are gathered."""
    if torch.device(device).type == "cuda" and find_spec("triton") is not None:
        return sr_swa_attention_triton
    return None


def sr_swa_attention_triton(
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
    """Arguments and result as told in `sr_swa_attention`; blocks, kept tokens and rings are read in place.

    Keys and values of a kind must share their strides. On a CPU it runs only in Triton's interpreter
    (TRITON_INTERPRET=1, set before triton is first imported). Raises DecoderError otherwise.
    """
    if queries.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise DecoderError(f"the Triton kernel runs on CUDA devices, not on {queries.device}")
    for keys, values in ((key_blocks, value_blocks), (kept_keys, kept_values), (ring_keys, ring_values)):
        if keys.stride() != values.stride() or keys.stride(-1) != 1:
            raise DecoderError("keys and values must share their strides, and their last dimension be contiguous")
    from ocr2_core.ocr2.triton_kernels import attend_tile, join_tiles

    batch, heads, head_size = queries.shape
    queries = queries if queries.stride(-1) == 1 else queries.contiguous()
    selected_blocks = selected_blocks if selected_blocks.stride(-1) == 1 else selected_blocks.contiguous()
    block_tokens = key_blocks.shape[2]
    selected_tiles = -(-selected_blocks.shape[1] * block_tokens // TILE_COLUMNS)
    kept_tiles = -(-kept_keys.shape[2] // TILE_COLUMNS)
    tiles = selected_tiles + kept_tiles + -(-ring_keys.shape[2] // TILE_COLUMNS)
    width = 1 << (head_size - 1).bit_length()
    tile_maxima = queries.new_empty((batch, heads, tiles), dtype=torch.float32)
    tile_sums = torch.empty_like(tile_maxima)
    tile_values = queries.new_empty((batch, heads, tiles, head_size), dtype=torch.float32)
    outputs = torch.empty((batch, heads, head_size), dtype=queries.dtype, device=queries.device)
    attend_tile[(batch, heads, tiles)](
        queries,
        key_blocks,
        value_blocks,
        selected_blocks,
        selected_counts,
        block_lengths,
        kept_keys,
        kept_values,
        kept_counts,
        ring_keys,
        ring_values,
        ring_counts,
        slots,
        tile_maxima,
        tile_sums,
        tile_values,
        scale,
        *queries.stride()[:2],
        *key_blocks.stride()[:3],
        selected_blocks.stride(0),
        *kept_keys.stride()[:3],
        *ring_keys.stride()[:3],
        HEADS=heads,
        GROUP=heads // key_blocks.shape[0],
        HEAD_SIZE=head_size,
        BLOCK_TOKENS=block_tokens,
        SELECTED_TILES=selected_tiles,
        KEPT_TILES=kept_tiles,
        TILES=tiles,
        TILE=TILE_COLUMNS,
        WIDTH=width,
    )
    join_tiles[(batch, heads)](
        tile_maxima,
        tile_sums,
        tile_values,
        outputs,
        HEADS=heads,
        HEAD_SIZE=head_size,
        TILES=tiles,
        STEP=JOIN_STEP,
        WIDTH=width,
    )
    return outputs
