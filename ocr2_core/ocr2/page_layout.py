"""How one page's visual tokens are laid into KV blocks.

The separator (last token) is always kept and lies outside the blocks. The others form one stream: all patches in
reading order, then all newlines, cut into blocks. In base mode (16 rows of 16 patches, blocks of 16 tokens) that gives
16 blocks of one row each plus one block of newlines: 17 full blocks, no padding. Any other page shape has at most one
partial block, its last. Order inside a block is irrelevant: keys carry their rotary position already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class PageLayout:
    """`stream`: offsets (0-based, within the page's tokens) of the tokens in blocks, in block order; the block of the
    i-th entry is i // block_tokens. `separator`: offset of the always-kept token."""

    stream: tuple[int, ...]
    separator: int
    block_tokens: int

    @property
    def block_lengths(self) -> tuple[int, ...]:
        """Tokens in each block; only the last may be below `block_tokens`."""
        full, rest = divmod(len(self.stream), self.block_tokens)
        return (self.block_tokens,) * full + ((rest,) if rest else ())


def page_layout(token_count: int, row_lengths: Sequence[int] = (), block_tokens: int = BLOCK_TOKENS) -> PageLayout:
    """The layout of a page of `token_count` visual tokens, the separator included.

    `row_lengths`: patches of each row, the newline behind each not counted (a gundam page: the rows of its crops, then
    those of its global view). Empty means: a square grid if the count fits one, else the tokens in the order they come.

    Raises ValueError where the rows do not add up to the token count.
    """
    if token_count < 1:
        raise ValueError(f"a page has at least its separator token, got {token_count} tokens")
    if not row_lengths:
        side = (isqrt(4 * (token_count - 1) + 1) - 1) // 2
        if side * (side + 1) != token_count - 1:
            return PageLayout(tuple(range(token_count - 1)), token_count - 1, block_tokens)
        row_lengths = (side,) * side
    patches: list[int] = []
    newlines: list[int] = []
    offset = 0
    for length in row_lengths:
        patches.extend(range(offset, offset + length))
        newlines.append(offset + length)
        offset += length + 1
    if offset + 1 != token_count:
        raise ValueError(f"rows {tuple(row_lengths)} make {offset + 1} tokens, the page has {token_count}")
    return PageLayout((*patches, *newlines), token_count - 1, block_tokens)
