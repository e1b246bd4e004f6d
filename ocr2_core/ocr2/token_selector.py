"""SR-SWA's second step: which blocks of visual tokens inside the gated pages. A pure function with fixed shapes.

The number of blocks is fixed. All blocks of the page being read come first, then all of the next page, then the best of
the gated pages; should those hold fewer than the fixed number, the best of the other pages fill up.
"""

from __future__ import annotations

import torch
from torch import Tensor


def select_blocks(
    scores: Tensor, valid: Tensor, gated: Tensor, current: Tensor, following: Tensor, count: int
) -> Tensor:
    """`scores` (R, M), not negative; bool masks (R, M): `valid` blocks that exist, `gated` those of the gated pages,
    `current` and `following` those of the page being read and of the next → (R, count) columns in [0, M).

    Each row needs at least `count` valid blocks.
    """
    # Tiers without adding to the scores of the gated pages: their small differences decide.
    ranked = torch.where(gated, scores, scores - scores.amax(dim=1, keepdim=True) - 1)
    ranked = ranked.masked_fill(following, torch.finfo(scores.dtype).max)
    ranked = ranked.masked_fill(current, float("inf"))
    return ranked.masked_fill(~valid, float("-inf")).topk(count, dim=1).indices
