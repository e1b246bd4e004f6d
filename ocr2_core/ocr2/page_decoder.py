"""What infinite decoding asks of a decoder: sequences over page groups, hand-overs, and one step for many sequences.

Two things implement it: the OCR2 model with its block pool (`model_decoder.py`), and the scripted decoder of the tests,
which emits chosen tokens. Infinite decoding, guards and batching know this interface only.

A sequence's cache holds, in this order of positions: BOS, the visual tokens of the pages of its current group, the
prompt, and the ring of the last n output tokens (n includes the current one). Positions are bounded, whatever the
document's length: a decoder turns kept keys back to small positions when a limit is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ocr2_core.errors import OcrError


class PoolExhausted(OcrError):
    """The block pool has not enough free blocks for what was asked. Waiting for other sequences to end may help."""


class Boundary(StrEnum):
    """How a sequence goes on at the hand-over from one page group to the next.

    CARRY: the overlap pages keep their keys and values unturned, new pages are prefilled behind them, the prompt is
    recomputed, the ring is kept and turned once (fp32) to its new positions; decoding goes on amid the output.
    RESTART: everything is dropped, the group (overlap pages first) is prefilled clean, the output starts anew.
    RECOMPUTE: as CARRY, but the overlap pages are prefilled afresh too; exists to measure what reuse costs.
    """

    CARRY = "carry"
    RESTART = "restart"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """One page's visual tokens, as they enter the language model.

    `features`: (token_count, hidden_size), rows of patches each followed by its newline, then the separator; a torch
    tensor for the real model, anything for a scripted one. In base mode token_count is 273 = 16·(16+1)+1.
    `row_lengths`: patches of each row, newline not counted; empty for a square grid.
    """

    page_index: int
    token_count: int
    features: Any
    row_lengths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KvUsage:
    """Bytes of live cache storage of a decoder: `kv_bytes` keys and values of blocks in use, kept tokens and rings,
    `index_bytes` block summaries, `pool_bytes` all blocks of the pool, used or free, `scratch_bytes` what a decode step
    works on besides: copies of the selected blocks (only where no kernel reads them in place), unused columns."""

    kv_bytes: int
    index_bytes: int
    pool_bytes: int
    scratch_bytes: int = 0


class PageDecoder(Protocol):
    """Decodes many sequences together. Sequence numbers are small integers, free again after `close_sequence`."""

    page_token_id: int
    stop_token_ids: frozenset[int]
    vocabulary_size: int

    def open_sequence(
        self, pages: Sequence[EncodedPage], prompt_token_ids: Sequence[int]
    ) -> tuple[int, NDArray[np.float32]]:
        """Prefill BOS, the group's pages and the prompt. Returns the sequence's number and the next logits (V,).

        Raises PoolExhausted, with nothing allocated, when the pool has not enough free blocks.
        """
        ...

    def sequence_bytes(self, page_token_counts: Sequence[int], prompt_token_count: int) -> int:
        """KV bytes, in whole blocks and with the ring, that a sequence over such a group holds once it is open."""
        ...

    def hand_over(
        self, sequence: int, kept_page_indexes: Sequence[int], new_pages: Sequence[EncodedPage], boundary: Boundary
    ) -> NDArray[np.float32] | None:
        """Move the sequence to its next group. Pages not kept are released before anything new is allocated.

        For RESTART and RECOMPUTE `new_pages` begins with the overlap pages, and `kept_page_indexes` is empty. Returns
        the next token's logits for RESTART (the output starts anew), None where decoding goes on from the ring: the
        next `step` then feeds the token decoded last. Raises PoolExhausted; the sequence can then only be closed.
        """
        ...

    def step(self, token_ids: dict[int, int]) -> dict[int, NDArray[np.float32]]:
        """Feed one token to each of these sequences together; returns the logits (V,) of the next token for each."""
        ...

    def set_current_page(self, sequence: int, page_index: int) -> None:
        """Tell the page gate which page is being read now (after each page marker); it re-selects at the next step."""
        ...

    def release_page(self, sequence: int, page_index: int) -> None:
        """Give back a finished page's blocks before the group's end."""
        ...

    def close_sequence(self, sequence: int) -> None:
        """Give back all blocks of the sequence."""
        ...

    def usage(self) -> KvUsage:
        """Counted from real storage, at any time."""
        ...
