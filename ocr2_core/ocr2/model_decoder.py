"""The OCR2 model as a `PageDecoder`: sequences over page groups in one block pool, hand-overs, and steps for many
sequences together. How positions run is told in `sequence_state.py`, what a step attends to in `decode_step.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ocr2_core.ocr2.block_pool import BlockPool
from ocr2_core.ocr2.decode_step import AttentionKernel, DecodeStep
from ocr2_core.ocr2.errors import DecoderError, UnknownPage, UnknownSequence
from ocr2_core.ocr2.group_cache import GroupCache
from ocr2_core.ocr2.image_preparation import PagePixels
from ocr2_core.ocr2.local_cache import LocalCache
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.page_decoder import Boundary, EncodedPage, KvUsage
from ocr2_core.ocr2.page_encoder import encode_pages
from ocr2_core.ocr2.page_layout import BLOCK_TOKENS
from ocr2_core.ocr2.selection import SelectionSettings
from ocr2_core.ocr2.sequence_state import SequenceState
from ocr2_core.ocr2.triton_decode import kernel_for


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """`pool_blocks`: KV blocks of the pool, for all sequences. `prefill_chunk_tokens`: tokens prefilled at a time.
    `position_limit`: reference positions beyond which a carried group's overlap pages are turned back to the start.
    `zero_released`: overwrite released blocks (debugging)."""

    pool_blocks: int
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    block_tokens: int = BLOCK_TOKENS
    prefill_chunk_tokens: int = 1024
    position_limit: int = 131_072
    zero_released: bool = False


class ModelDecoder:
    """See `PageDecoder`. Not for use by several threads at once, but for `encode_pages`, which touches no cache."""

    def __init__(
        self,
        model: SrSwaOcrModel,
        settings: DecoderSettings,
        *,
        page_token_id: int,
        stop_token_ids: frozenset[int] | None = None,
        kernel: AttentionKernel | Literal["auto"] | None = "auto",
    ) -> None:
        """`page_token_id`: the tokenizer's id of `<PAGE>`. `stop_token_ids`: None takes the model's end-of-text ids.
        `kernel`: an attention kernel that reads blocks in place; None gathers the selected blocks; "auto" takes the
        Triton kernel where it runs and gathers elsewhere."""
        text: Any = model.text_config
        self.page_token_id = page_token_id
        self.stop_token_ids = _stop_ids(text.eos_token_id) if stop_token_ids is None else stop_token_ids
        self.vocabulary_size: int = text.vocab_size
        self.model = model
        self.settings = settings
        embedding = model.model.language_model.embed_tokens.weight
        self._device, dtype = embedding.device, embedding.dtype
        self._kernel = kernel_for(self._device) if kernel == "auto" else kernel
        shape = {"layers": text.num_hidden_layers, "key_heads": text.num_key_value_heads, "head_size": text.head_dim}
        self.pool = BlockPool(
            **shape,
            block_count=settings.pool_blocks,
            block_tokens=settings.block_tokens,
            dtype=dtype,
            device=self._device,
            zero_released=settings.zero_released,
        )
        self.local = LocalCache(**shape, window=text.sliding_window, dtype=dtype, device=self._device)
        self._groups = GroupCache(
            model,
            self.pool,
            self.local,
            prefill_chunk_tokens=settings.prefill_chunk_tokens,
            position_limit=settings.position_limit,
        )
        self._sequences: dict[int, SequenceState] = {}

    def encode_pages(self, pages: Sequence[tuple[int, PagePixels]], batch_pages: int = 4) -> list[EncodedPage]:
        """Visual tokens of pages, given by page index and pixels: see `page_encoder.encode_pages`."""
        return encode_pages(self.model, pages, batch_pages)

    def sequence_bytes(self, page_token_counts: Sequence[int], prompt_token_count: int) -> int:
        """KV bytes that a sequence over pages of so many tokens holds: whole blocks, kept tokens and the ring."""
        blocks = sum(-(-(count - 1) // self.pool.block_tokens) for count in page_token_counts)
        tokens = 1 + prompt_token_count + len(page_token_counts) + self.local.window
        return blocks * self.pool.block_bytes + tokens * self.local.token_bytes

    @torch.no_grad()
    def open_sequence(
        self, pages: Sequence[EncodedPage], prompt_token_ids: Sequence[int]
    ) -> tuple[int, NDArray[np.float32]]:
        """See `PageDecoder`."""
        if not pages:
            raise DecoderError("a sequence needs at least one page")
        self._groups.check(pages)
        slot = next(number for number in range(len(self._sequences) + 1) if number not in self._sequences)
        state = SequenceState(slot, tuple(prompt_token_ids))
        self._sequences[slot] = state
        try:
            hidden = self._groups.prefill_group(state, pages)
        except BaseException:
            self.close_sequence(slot)
            raise
        state.current_page_index = pages[0].page_index
        return slot, self._logits(hidden)

    @torch.no_grad()
    def hand_over(
        self, sequence: int, kept_page_indexes: Sequence[int], new_pages: Sequence[EncodedPage], boundary: Boundary
    ) -> NDArray[np.float32] | None:
        """See `PageDecoder`. Raises PoolExhausted, with the sequence as it was, when the pool has too few blocks."""
        state = self._state(sequence)
        if boundary is not Boundary.CARRY and kept_page_indexes:
            raise DecoderError(
                f"boundary {boundary} keeps no pages in the cache, asked to keep {list(kept_page_indexes)}"
            )
        missing = [index for index in kept_page_indexes if state.page_place(index) is None]
        if missing:
            raise UnknownPage(
                f"pages with index {missing} are to be kept but are not in the cache of sequence {sequence}"
            )
        if not kept_page_indexes and not new_pages:
            raise DecoderError("a group needs at least one page")
        dropped = [page for page in state.pages if page.page_index not in kept_page_indexes]
        self._groups.check(new_pages, kept_page_indexes, sum(len(page.blocks) for page in dropped))
        for page in dropped:
            self._groups.drop_page(state, page)
        if boundary is Boundary.RESTART:
            self.local.clear(state.slot)
            state.output_count = state.next_position = 0
        hidden = self._groups.prefill_group(state, new_pages)
        if boundary is Boundary.RESTART or state.page_place(state.current_page_index) is None:
            state.current_page_index = state.pages[0].page_index
        return self._logits(hidden) if boundary is Boundary.RESTART else None

    @torch.no_grad()
    def step(self, token_ids: dict[int, int]) -> dict[int, NDArray[np.float32]]:
        """See `PageDecoder`."""
        if not token_ids:
            return {}
        states = [self._state(sequence) for sequence in sorted(token_ids)]
        decode_step = DecodeStep(
            states,
            pool=self.pool,
            local=self.local,
            selection=self.settings.selection,
            gates=self.model.gates,
            kernel=self._kernel,
        )
        tokens = torch.tensor([token_ids[state.slot] for state in states], device=self._device)
        positions = torch.tensor([state.next_position for state in states], device=self._device)
        logits = self.model.decode(tokens, positions, decode_step).cpu().numpy()
        return {state.slot: row for state, row in zip(states, logits, strict=True)}

    def set_current_page(self, sequence: int, page_index: int) -> None:
        """See `PageDecoder`. Raises UnknownPage."""
        state = self._state(sequence)
        if state.page_place(page_index) is None:
            raise UnknownPage(f"page index {page_index} is not in the cache of sequence {sequence}")
        state.current_page_index = page_index
        state.select_due = True

    def release_page(self, sequence: int, page_index: int) -> None:
        """See `PageDecoder`. Raises UnknownPage."""
        state = self._state(sequence)
        place = state.page_place(page_index)
        if place is None:
            raise UnknownPage(f"page index {page_index} is not in the cache of sequence {sequence}")
        self._groups.drop_page(state, state.pages[place])
        state.rebuild_table(self._device)

    def close_sequence(self, sequence: int) -> None:
        """See `PageDecoder`."""
        state = self._state(sequence)
        self.pool.release([block for page in state.pages for block in page.blocks])
        if state.slot < self.local.slots:
            self.local.clear(state.slot)
        del self._sequences[sequence]

    def usage(self) -> KvUsage:
        """See `PageDecoder`."""
        window = self.local.window
        local_bytes = sum(state.kept_count + window for state in self._sequences.values()) * self.local.token_bytes
        return KvUsage(
            kv_bytes=self.pool.used_count * self.pool.block_bytes + local_bytes,
            index_bytes=self.pool.used_count * self.pool.summary_bytes,
            pool_bytes=self.pool.storage_bytes,
            scratch_bytes=max(self.local.storage_bytes - local_bytes, 0),
        )

    def _state(self, sequence: int) -> SequenceState:
        try:
            return self._sequences[sequence]
        except KeyError:
            raise UnknownSequence(f"sequence {sequence} is not open") from None

    def _logits(self, hidden: Tensor) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self.model.lm_head(hidden).float().cpu().numpy()
        return logits


def _stop_ids(eos: int | list[int] | None) -> frozenset[int]:
    if eos is None:
        return frozenset()
    return frozenset([eos] if isinstance(eos, int) else eos)
