"""One open sequence: its pages, the places of its tokens, and its positions.

Positions. A group's reference tokens stand as they would in a prompt of their own: BOS at `base`, then the pages one
after the other, then the prompt; output tokens count on from there. Rotary attention sees differences only, so `base`
is free: the first group has base 0, and a carried group has the base that leaves its overlap pages where they are
(BOS goes right before the first of them). The output of a carried group counts on from behind the new prompt, where
the ring's tokens are put by turning their keys once. So a hand-over moves positions by the pages of a group and never
by its text; past `position_limit` the overlap pages' keys are turned too, once, and the base is 0 again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from ocr2_core.ocr2.page_layout import PageLayout


@dataclass(slots=True)
class CachedPage:
    """A page in the cache. `first_position`: of its first token; `separator_column`: kept column of its separator."""

    page_index: int
    layout: PageLayout
    blocks: list[int]
    first_position: int
    separator_column: int

    @property
    def token_count(self) -> int:
        """Visual tokens, the separator included."""
        return len(self.layout.stream) + 1

    @property
    def end_position(self) -> int:
        """Position behind its last token."""
        return self.first_position + self.token_count


@dataclass(slots=True)
class SequenceState:
    """`next_position`: of the next token fed; `output_count`: output tokens fed so far, so the ring holds the last
    min(output_count, window); `kept_count`: BOS, prompt and separators in the local cache. `gather_due`: blocks, kept
    tokens or both changed; `select_due`: the next step selects anew; `steps_since_selection` since it last did.
    `copied_place`: the page being read when blocks were last copied for it, -1 if none; see `near_blocks`."""

    slot: int
    prompt_token_ids: tuple[int, ...]
    pages: list[CachedPage] = field(default_factory=list)
    current_page_index: int = -1
    next_position: int = 0
    output_count: int = 0
    kept_count: int = 0
    gather_due: bool = True
    select_due: bool = True
    steps_since_selection: int = 0
    copied_place: int = -1
    # Set by `rebuild_table`: (M,) block numbers and the place of each block's page; their runs without a gap as (first
    # column, first block, length); blocks of the two neighbouring pages that have most; whether any block is not full.
    block_table: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    block_pages: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    block_runs: list[tuple[int, int, int]] = field(default_factory=list)
    largest_pair: int = 0
    has_partial_block: bool = False

    def page_place(self, page_index: int) -> int | None:
        """Place of a page in `pages`; None if it is not in the cache."""
        return next((place for place, page in enumerate(self.pages) if page.page_index == page_index), None)

    @property
    def current_place(self) -> int:
        """Place of the page being read; the first page after it where it was released already."""
        place = self.page_place(self.current_page_index)
        if place is not None:
            return place
        later = (place for place, page in enumerate(self.pages) if page.page_index > self.current_page_index)
        return next(later, max(len(self.pages) - 1, 0))

    @property
    def near_blocks(self) -> int:
        """Blocks of the page being read and the next. They come first in every selection, in the same order, so they
        need no new copy while that page is being read."""
        return sum(len(page.blocks) for page in self.pages[self.current_place : self.current_place + 2])

    @property
    def block_count(self) -> int:
        """Blocks of all its pages."""
        return len(self.block_table)

    def selected_count(self, block_budget: int | None) -> int:
        """Blocks a step attends to: the budget, at least what two neighbouring pages need, at most all there are."""
        if block_budget is None:
            return self.block_count
        return min(max(block_budget, self.largest_pair), self.block_count)

    def rebuild_table(self, device: torch.device | str) -> None:
        """Call after pages came or went."""
        blocks = [block for page in self.pages for block in page.blocks]
        places = [place for place, page in enumerate(self.pages) for _ in page.blocks]
        self.block_table = torch.tensor(blocks, dtype=torch.int64, device=device)
        self.block_pages = torch.tensor(places, dtype=torch.int64, device=device)
        self.block_runs = runs_without_gap(blocks)
        sizes = [len(page.blocks) for page in self.pages]
        self.largest_pair = max(map(sum, pairwise([*sizes, 0])), default=0)
        self.has_partial_block = any(len(p.layout.stream) % p.layout.block_tokens for p in self.pages)
        self.gather_due = self.select_due = True
        self.copied_place = -1


def runs_without_gap(numbers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs of numbers that count up by one, as (place of the first, the first number, length)."""
    runs: list[tuple[int, int, int]] = []
    for place, number in enumerate(numbers):
        if runs and runs[-1][1] + runs[-1][2] == number:
            runs[-1] = (runs[-1][0], runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((place, number, 1))
    return runs
