"""One decode step of many sequences: each token's keys go into its ring, the selection is refreshed where it is due,
and the queries attend. It stands where transformers' modules expect a cache and an attention function (see `model.py`).

A sequence's schedule (when it selects, what it may select from, how many blocks) depends on that sequence alone, so
what else is in the batch changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ocr2_core.ocr2.block_pool import BlockPool
from ocr2_core.ocr2.gates import TrainedGates
from ocr2_core.ocr2.local_cache import MASKED, LocalCache
from ocr2_core.ocr2.selection import SelectionGroup, SelectionSettings
from ocr2_core.ocr2.sequence_state import SequenceState, runs_without_gap
from ocr2_core.ocr2.sr_swa_attention import attend_gathered

AttentionKernel = Callable[..., Tensor]


class DecodeStep:
    """Made anew for each step. `sequences` in ascending order of their slots. `kernel`: a function with the signature
    of `sr_swa_attention_reference` that reads blocks in place; None attends over gathered columns."""

    def __init__(
        self,
        sequences: Sequence[SequenceState],
        *,
        pool: BlockPool,
        local: LocalCache,
        selection: SelectionSettings,
        gates: TrainedGates | None = None,
        kernel: AttentionKernel | None = None,
    ) -> None:
        self._sequences = sequences
        self._pool, self._local, self._gates, self._kernel = pool, local, gates, kernel
        self._selection = selection
        device = pool.keys.device
        window = local.window
        counts = [state.selected_count(selection.block_budget) for state in sequences]
        self._counts = counts
        gathered = 0 if kernel is not None else pool.block_tokens
        self._ends = [
            window + state.kept_count + count * gathered for state, count in zip(sequences, counts, strict=True)
        ]
        local.reserve(max(state.slot for state in sequences) + 1, max(self._ends), max(counts))
        self._ring_columns = [state.output_count % window for state in sequences]
        ring_counts = [min(state.output_count + 1, window) for state in sequences]
        for state, ring_count, column in zip(sequences, ring_counts, self._ring_columns, strict=True):
            if state.gather_due:
                local.open_columns(state.slot, ring_count, state.kept_count)
            elif state.output_count < window:
                for bias in local.bias:
                    bias[state.slot, column] = 0
        self._slots = torch.tensor([state.slot for state in sequences], device=device)
        self._ring_index = torch.tensor(self._ring_columns, device=device)
        self._runs = [self._run(*run, ring_counts) for run in runs_without_gap([state.slot for state in sequences])]
        if kernel is not None:
            self._ring_counts = torch.tensor(ring_counts, dtype=torch.int32, device=device)
            self._kept_counts = torch.tensor([s.kept_count for s in sequences], dtype=torch.int32, device=device)
            self._selected_counts = torch.tensor(counts, dtype=torch.int32, device=device)
        self._whole, self._groups = self._plan()
        self._copied = [[self._copied_blocks(row) for row in group.rows] for group in self._groups]

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store the tokens' keys and values (B, heads, 1, head size) in the rings."""
        self._local.keys[layer_idx][self._slots, :, self._ring_index] = keys[:, :, 0]
        self._local.values[layer_idx][self._slots, :, self._ring_index] = values[:, :, 0]
        return keys, values

    def attend(self, layer: int, queries: Tensor, scale: float) -> Tensor:
        """`queries` (B, H, D), rotated → (B, H, D)."""
        for row in self._whole:
            self._take(layer, row, self._sequences[row].block_table)
        for place, group in enumerate(self._groups):
            blocks = group.select(layer, queries[group.rows_index], scale, self._pool, self._gates, self._selection)
            for row, copied, selected in zip(group.rows, self._copied[place], blocks, strict=True):
                self._take(layer, row, selected, copied)
        local = self._local
        if self._kernel is not None:
            kept_columns = slice(local.window, max(self._ends))
            return self._kernel(
                queries,
                self._pool.keys[layer],
                self._pool.values[layer],
                local.selected[layer][self._slots, : max(self._counts)],
                self._selected_counts,
                self._pool.block_lengths,
                local.keys[layer][:, :, kept_columns],
                local.values[layer][:, :, kept_columns],
                self._kept_counts,
                local.keys[layer][:, :, : local.window],
                local.values[layer][:, :, : local.window],
                self._ring_counts,
                self._slots,
                scale,
            )
        outputs = []
        for place, slot, length, end, masked in self._runs:
            rows = slice(slot, slot + length)
            outputs.append(
                attend_gathered(
                    queries[place : place + length],
                    local.keys[layer][rows, :, :end],
                    local.values[layer][rows, :, :end],
                    local.bias[layer][rows, :end] if masked else None,
                    scale,
                )
            )
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def finish(self) -> None:
        """Count the step in its sequences. Call once, after the last layer."""
        for group in self._groups:
            for row in group.rows:
                self._sequences[row].copied_place = self._sequences[row].current_place
        for state in self._sequences:
            if state.select_due or state.gather_due:
                state.steps_since_selection = 0
            state.gather_due = False
            state.steps_since_selection += 1
            state.select_due = state.steps_since_selection >= self._selection.refresh_steps
            state.output_count += 1
            state.next_position += 1

    def _run(self, place: int, slot: int, length: int, ring_counts: list[int]) -> tuple[int, int, int, int, bool]:
        """A run of slots with its last column, and whether any column before it is masked for any of its rows."""
        ends = self._ends[place : place + length]
        masked = min(ends) < max(ends) or min(ring_counts[place : place + length]) < self._local.window
        partial = any(state.has_partial_block for state in self._sequences[place : place + length])
        return place, slot, length, max(ends), masked or partial

    def _plan(self) -> tuple[list[int], list[SelectionGroup]]:
        """Rows that take all their blocks (and have to copy them now), and groups of rows that select."""
        whole: list[int] = []
        choosing: dict[int, list[int]] = {}
        for row, (state, count) in enumerate(zip(self._sequences, self._counts, strict=True)):
            if count == state.block_count:
                if state.gather_due:
                    whole.append(row)
            elif state.gather_due or state.select_due:
                choosing.setdefault(count, []).append(row)
        groups = [
            SelectionGroup(rows, [self._sequences[row] for row in rows], count) for count, rows in choosing.items()
        ]
        return whole, groups

    def _copied_blocks(self, row: int) -> int:
        """How many of a row's next selection, from its start, are copied already."""
        state = self._sequences[row]
        return state.near_blocks if state.copied_place == state.current_place else 0

    def _take(self, layer: int, row: int, blocks: Tensor, copied: int = 0) -> None:
        """Make `blocks` (count,) the selection of a row, and copy them where no kernel reads them in place, but for the
        first `copied`."""
        state, local, pool = self._sequences[row], self._local, self._pool
        count = len(blocks)
        local.selected[layer][state.slot, :count] = blocks
        local.selected[layer][state.slot, count:] = 0
        blocks = blocks[copied:]
        if self._kernel is not None or len(blocks) == 0:
            return
        first = local.window + state.kept_count
        shape = (pool.keys.shape[1], len(blocks), pool.block_tokens, pool.keys.shape[4])
        columns = slice(first + copied * pool.block_tokens, first + count * pool.block_tokens)
        for source, target in ((pool.keys, local.keys), (pool.values, local.values)):
            torch.index_select(source[layer], 1, blocks, out=target[layer][state.slot, :, columns].view(shape))
        if state.gather_due or state.has_partial_block:
            held = torch.arange(pool.block_tokens, device=blocks.device) < pool.block_lengths[blocks, None]
            bias = local.bias[layer]
            bias[state.slot, columns] = torch.zeros_like(held, dtype=bias.dtype).masked_fill(~held, MASKED).flatten()
