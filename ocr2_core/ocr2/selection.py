"""Selecting blocks for sequences of one step: page gate, then token selector, over each sequence's block table."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ocr2_core.ocr2.block_pool import BlockPool
from ocr2_core.ocr2.gates import TrainedGates
from ocr2_core.ocr2.page_gate import block_scores, gate_pages, page_scores, summary_logits
from ocr2_core.ocr2.sequence_state import SequenceState
from ocr2_core.ocr2.token_selector import select_blocks

# A block table in more pieces than this is scored over a copy: many small products cost more than one copy.
_MOST_RUNS = 8


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """`page_budget`: pages kept by the page gate besides the one being read and its neighbours. `block_budget`: blocks
    attended to; None attends to all (plain R-SWA). `refresh_steps`: steps from one selection to the next."""

    page_budget: int = 8
    block_budget: int | None = 64
    refresh_steps: int = 4

    def __post_init__(self) -> None:
        if self.page_budget < 1 or self.refresh_steps < 1 or (self.block_budget is not None and self.block_budget < 1):
            raise ValueError(f"selection budgets and refresh steps must be positive: {self}")


class SelectionGroup:
    """Rows of a step that select the same number of blocks now. What does not depend on the layer is laid out once."""

    def __init__(self, rows: list[int], states: list[SequenceState], count: int) -> None:
        device = states[0].block_table.device
        self.rows, self._states, self._count = rows, states, count
        self.rows_index = torch.tensor(rows, device=device)
        widest = max(len(state.block_table) for state in states)
        self._table = torch.zeros(len(rows), widest, dtype=torch.int64, device=device)
        self._block_pages = torch.zeros_like(self._table)
        self._valid = torch.zeros_like(self._table, dtype=torch.bool)
        for row, state in enumerate(states):
            blocks = len(state.block_table)
            self._table[row, :blocks] = state.block_table
            self._block_pages[row, :blocks] = state.block_pages
            self._valid[row, :blocks] = True
        current = torch.tensor([state.current_place for state in states], device=device)
        self._current = current
        self._page_counts = torch.tensor([len(state.pages) for state in states], device=device)
        self._page_columns = max(len(state.pages) for state in states)
        self._is_current = (self._block_pages == current[:, None]) & self._valid
        self._is_following = (self._block_pages == current[:, None] + 1) & self._valid

    def select(
        self,
        layer: int,
        queries: Tensor,
        scale: float,
        pool: BlockPool,
        gates: TrainedGates | None,
        selection: SelectionSettings,
    ) -> Tensor:
        """`queries` (R, H, D) → numbers of the selected blocks (R, count): first those of the page being read and the
        next, always in the same order, then the others."""
        gate_queries = queries if gates is None else _projected(queries, gates.page_gate[layer])
        logits = self._logits(layer, gate_queries, scale, pool)
        scores = block_scores(logits, self._valid)
        pages = gate_pages(
            page_scores(scores, self._block_pages, self._page_columns),
            self._page_counts,
            self._current,
            selection.page_budget,
        )
        gated = pages.gather(1, self._block_pages) & self._valid
        if gates is not None:
            logits = self._logits(layer, _projected(queries, gates.token_selector[layer]), scale, pool)
        columns = select_blocks(
            block_scores(logits, gated), self._valid, gated, self._is_current, self._is_following, self._count
        )
        width = self._table.shape[1]
        others = ~(self._is_current | self._is_following).gather(1, columns)
        return self._table.gather(1, (columns + others * width).sort(dim=1).values % width)

    def _logits(self, layer: int, queries: Tensor, scale: float, pool: BlockPool) -> Tensor:
        """(R, H, M) fp32; padded columns hold 0 and are masked by the caller."""
        rows, heads = queries.shape[:2]
        logits = torch.zeros(rows, heads, self._table.shape[1], device=queries.device)
        for row, state in enumerate(self._states):
            own = queries[row].to(pool.summaries.dtype)
            if len(state.block_runs) > _MOST_RUNS:
                summaries = pool.summaries[layer].index_select(0, state.block_table)
                logits[row, :, : len(state.block_table)] = summary_logits(own, summaries, scale)
                continue
            for column, first, length in state.block_runs:
                # Blocks that lie side by side need no copy of their summaries.
                summaries = pool.summaries[layer, first : first + length]
                logits[row, :, column : column + length] = summary_logits(own, summaries, scale)
        return logits


def _projected(queries: Tensor, matrices: Tensor) -> Tensor:
    """`queries` (R, H, D) by one matrix a head (H, D, D), in fp32."""
    return torch.einsum("rhd,hde->rhe", queries.float(), matrices.to(queries.device))
