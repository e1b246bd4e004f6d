"""SR-SWA's first step: which pages a decode step looks at. Pure functions on tensors with fixed shapes.

A block's score is the attention its mean key would draw: softmax per head over the candidate blocks, summed over heads.
A page's score is the best of its blocks' scores (on synthetic needles that finds the right pages at .93 to 1.0, against
.44 to .77 for a page's mean). Kept are the page being read, its two neighbours and the best of the others.

Shapes: R sequences, H query heads, Hkv key heads, D head size, M block columns (padded), G page columns (padded). Pages
are numbered by their place in the sequence's cache (reading order), not by their page index.
"""

from __future__ import annotations

import torch
from torch import Tensor


def summary_logits(queries: Tensor, summaries: Tensor, scale: float) -> Tensor:
    """Scores of one sequence's blocks before the softmax. `queries` (H, D), `summaries` (M, Hkv, D) → (H, M) fp32.

    One product for all heads: each query stands in its own key head's rows of a matrix that is zero elsewhere. That is
    Hkv times the arithmetic, but it reads the summaries once and in order, which is what takes the time.
    """
    key_heads, width = summaries.shape[1:]
    own = torch.eye(key_heads, dtype=queries.dtype, device=queries.device)[:, None, :, None]
    spread = queries.view(key_heads, -1, width).transpose(1, 2)[:, :, None] * own
    return torch.mm(summaries.flatten(1), spread.flatten(2).flatten(0, 1)).t().float() * scale


def block_scores(logits: Tensor, candidates: Tensor) -> Tensor:
    """`logits` (R, H, M), `candidates` (R, M) bool, at least one a row → (R, M): 0 for a block that is no candidate."""
    masked = logits.masked_fill(~candidates[:, None, :], float("-inf"))
    return torch.softmax(masked, dim=-1).sum(dim=1)


def page_scores(scores: Tensor, block_pages: Tensor, page_columns: int) -> Tensor:
    """The best block score of each page. `scores` (R, M), `block_pages` (R, M): the page each block belongs to, padded
    columns with any page and score 0 → (R, page_columns)."""
    best = torch.zeros(scores.shape[0], page_columns, dtype=scores.dtype, device=scores.device)
    return best.scatter_reduce(1, block_pages, scores, reduce="amax")


def gate_pages(scores: Tensor, page_counts: Tensor, current: Tensor, page_budget: int) -> Tensor:
    """Pages to look at: the current one, the one before, the next, and the `page_budget` best of the others (where a
    neighbour is missing, one more of the others: the count is always the same).

    `scores` (R, G), `page_counts` (R,) pages of each sequence, `current` (R,) → (R, G) bool.
    """
    columns = torch.arange(scores.shape[1], device=scores.device)
    near = (columns - current[:, None]).abs() <= 1
    ranked = scores.masked_fill(near, float("inf")).masked_fill(columns >= page_counts[:, None], float("-inf"))
    best = ranked.topk(min(page_budget + 3, scores.shape[1]), dim=1).indices
    kept = torch.zeros_like(near).scatter_(1, best, torch.ones_like(near))
    return kept & (columns < page_counts[:, None])
