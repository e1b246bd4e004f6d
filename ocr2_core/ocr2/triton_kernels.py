"""Triton kernels of SR-SWA attention for one decode step: split over the keys, then combined (as in Flash-Decoding).

The keys of a sequence lie in three places: selected blocks of the pool, kept tokens, the ring. They are cut into tiles
of TILE columns, a program each, so that one query keeps the whole GPU busy; no tile crosses from one place to the next.
A program leaves the softmax's maximum and sum of its tile and the weighted sum of its values; a second kernel joins the
tiles. All sizes come from shapes, none from data, so that a CUDA graph can hold both.

This module imports triton; `triton_decode` chooses it where it can run.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attend_tile(
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
    query_row,
    query_head,
    block_head,
    block_number,
    block_token,
    table_row,
    kept_slot,
    kept_head,
    kept_column,
    ring_slot,
    ring_head,
    ring_column,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SELECTED_TILES: tl.constexpr,
    KEPT_TILES: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Program (sequence, query head, tile). Small names are strides in elements: keys and values share them."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    tile = tl.program_id(2)
    # 64 bits: a large pool has more than 2^31 elements
    key_head = (head // GROUP).to(tl.int64)
    lanes = tl.arange(0, WIDTH)
    inside = lanes < HEAD_SIZE
    columns = tl.arange(0, TILE)
    slot = tl.load(slots + row)
    if tile < SELECTED_TILES:
        columns += tile * TILE
        place = columns // BLOCK_TOKENS
        is_selected = place < tl.load(selected_counts + row)
        number = tl.load(selected_blocks + row * table_row + place, mask=is_selected, other=0)
        token = columns % BLOCK_TOKENS
        held = is_selected & (token < tl.load(block_lengths + number, mask=is_selected, other=0))
        offsets = key_head * block_head + number * block_number + token * block_token
        keys_at = key_blocks + offsets
        values_at = value_blocks + offsets
    elif tile < SELECTED_TILES + KEPT_TILES:
        columns += (tile - SELECTED_TILES) * TILE
        held = columns < tl.load(kept_counts + row)
        offsets = slot * kept_slot + key_head * kept_head + columns.to(tl.int64) * kept_column
        keys_at = kept_keys + offsets
        values_at = kept_values + offsets
    else:
        columns += (tile - SELECTED_TILES - KEPT_TILES) * TILE
        held = columns < tl.load(ring_counts + row)
        offsets = slot * ring_slot + key_head * ring_head + columns.to(tl.int64) * ring_column
        keys_at = ring_keys + offsets
        values_at = ring_values + offsets
    wanted = held[:, None] & inside[None, :]
    query = tl.load(queries + row * query_row + head * query_head + lanes, mask=inside, other=0.0).to(tl.float32)
    keys = tl.load(keys_at[:, None] + lanes[None, :], mask=wanted, other=0.0).to(tl.float32)
    scores = tl.where(held, tl.sum(keys * query[None, :], axis=1) * scale, -float("inf"))
    maximum = tl.max(scores, axis=0)
    # a tile without keys has maximum -inf and must weigh nothing
    weights = tl.where(held, tl.exp(scores - tl.where(maximum == -float("inf"), 0.0, maximum)), 0.0)
    values = tl.load(values_at[:, None] + lanes[None, :], mask=wanted, other=0.0).to(tl.float32)
    at = (row * HEADS + head) * TILES + tile
    tl.store(tile_maxima + at, maximum)
    tl.store(tile_sums + at, tl.sum(weights, axis=0))
    tl.store(tile_values + at * HEAD_SIZE + lanes, tl.sum(values * weights[:, None], axis=0), mask=inside)


@triton.jit
def join_tiles(
    tile_maxima,
    tile_sums,
    tile_values,
    outputs,
    HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    TILES: tl.constexpr,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Program (sequence, query head): the tiles' sums, brought to one maximum and divided by their weights."""
    first = (tl.program_id(0) * HEADS + tl.program_id(1)) * TILES
    lanes = tl.arange(0, WIDTH)
    inside = lanes < HEAD_SIZE
    maximum = -float("inf")
    total = 0.0
    joined = tl.zeros([WIDTH], dtype=tl.float32)
    for start in range(0, TILES, STEP):
        tiles = start + tl.arange(0, STEP)
        there = tiles < TILES
        maxima = tl.load(tile_maxima + first + tiles, mask=there, other=-float("inf"))
        # every query has its own token in the ring, so the maximum of all tiles is finite; a step's may not be
        new_maximum = tl.maximum(maximum, tl.max(maxima, axis=0))
        safe = tl.where(new_maximum == -float("inf"), 0.0, new_maximum)
        factors = tl.where(maxima == -float("inf"), 0.0, tl.exp(maxima - safe))
        sums = tl.load(tile_sums + first + tiles, mask=there, other=0.0)
        places = (first + tiles)[:, None] * HEAD_SIZE + lanes[None, :]
        values = tl.load(tile_values + places, mask=there[:, None] & inside[None, :], other=0.0)
        fade = tl.exp(maximum - safe)
        total = total * fade + tl.sum(sums * factors, axis=0)
        joined = joined * fade + tl.sum(values * factors[:, None], axis=0)
        maximum = new_maximum
    at = (tl.program_id(0) * HEADS + tl.program_id(1)) * HEAD_SIZE
    tl.store(outputs + at + lanes, (joined / total).to(outputs.dtype.element_ty), mask=inside)
