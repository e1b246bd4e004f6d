"""The OCR2 model as a `PageDecoder`: sequences over page groups in one block pool, hand-overs, and steps for many
sequences together. How positions run is told in `sequence_state.py`, what a step attends to in `decode_step.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ocr2_core.ocr2.block_pool import BlockPool
from ocr2_core.ocr2.decode_step import AttentionKernel, DecodeStep, SelectionSettings
from ocr2_core.ocr2.errors import DecoderError, PoolExhausted, UnknownPage, UnknownSequence
from ocr2_core.ocr2.image_preparation import PagePixels
from ocr2_core.ocr2.local_cache import LocalCache, turn_angles, turn_keys
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.page_decoder import Boundary, EncodedPage, KvUsage
from ocr2_core.ocr2.page_encoder import encode_pages
from ocr2_core.ocr2.page_layout import BLOCK_TOKENS, PageLayout, page_layout
from ocr2_core.ocr2.prefill import TokenPlaces, prefill
from ocr2_core.ocr2.sequence_state import CachedPage, SequenceState


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
        kernel: AttentionKernel | None = None,
    ) -> None:
        """`page_token_id`: the tokenizer's id of `<PAGE>`. `stop_token_ids`: None takes the model's end-of-text ids.
        `kernel`: an attention kernel that reads blocks in place; None gathers the selected blocks."""
        text: Any = model.text_config
        self.page_token_id = page_token_id
        self.stop_token_ids = _stop_ids(text.eos_token_id) if stop_token_ids is None else stop_token_ids
        self.vocabulary_size: int = text.vocab_size
        self.model = model
        self.settings = settings
        self._kernel = kernel
        embedding = model.model.language_model.embed_tokens.weight
        self._device, dtype = embedding.device, embedding.dtype
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
        self._check_free(pages, released=0)
        slot = next(number for number in range(len(self._sequences) + 1) if number not in self._sequences)
        state = SequenceState(slot, tuple(prompt_token_ids))
        self._sequences[slot] = state
        try:
            hidden = self._prefill_group(state, pages, base=0)
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
        self._check_free(new_pages, released=sum(len(page.blocks) for page in dropped))
        for page in dropped:
            self._drop(state, page)
        if boundary is Boundary.RESTART:
            self.local.clear(state.slot)
            state.output_count = state.next_position = 0
        base = self._base(state, new_pages)
        hidden = self._prefill_group(state, new_pages, base)
        if state.page_place(state.current_page_index) is None:
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
        self._drop(state, state.pages[place])
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

    def _check_free(self, pages: Sequence[EncodedPage], released: int) -> None:
        wanted = sum(len(self._layout(page).block_lengths) for page in pages)
        if wanted > self.pool.free_count + released:
            raise PoolExhausted(wanted, self.pool.free_count + released, self.pool.block_count)

    def _layout(self, page: EncodedPage) -> PageLayout:
        return page_layout(page.token_count, page.row_lengths, self.settings.block_tokens)

    def _drop(self, state: SequenceState, page: CachedPage) -> None:
        """Release a page's blocks and its separator; the last separator moves into the hole."""
        self.pool.release(page.blocks)
        state.pages.remove(page)
        last = state.kept_count - 1
        self.local.drop_kept(state.slot, page.separator_column, last)
        for other in state.pages:
            if other.separator_column == last:
                other.separator_column = page.separator_column
        state.kept_count = last

    def _base(self, state: SequenceState, new_pages: Sequence[EncodedPage]) -> int:
        """BOS's position in the next group: right before the first kept page, whose keys so need no turn. Where that
        would put the group beyond the position limit, the kept pages are turned back to the start instead."""
        if not state.pages:
            return 0
        base = state.pages[0].first_position - 1
        end = state.pages[-1].end_position + sum(page.token_count for page in new_pages) + len(state.prompt_token_ids)
        if end > self.settings.position_limit and base > 0:
            self._turn_pages(state, -base)
            return 0
        return base

    def _turn_pages(self, state: SequenceState, distance: int) -> None:
        cosine, sine = self._angles(distance)
        blocks = torch.cat([torch.tensor(page.blocks, dtype=torch.int64) for page in state.pages]).to(self._device)
        separators = torch.tensor([page.separator_column for page in state.pages], device=self._device)
        for layer in range(self.pool.keys.shape[0]):
            self.pool.keys[layer][:, blocks] = turn_keys(self.pool.keys[layer][:, blocks], cosine, sine)
            kept = self.local.kept_keys(layer)[state.slot]
            kept[:, separators] = turn_keys(kept[:, separators], cosine, sine)
        self.pool.summarise(blocks.tolist())
        for page in state.pages:
            page.first_position += distance

    def _angles(self, distance: int) -> tuple[Tensor, Tensor]:
        return turn_angles(self.model.model.language_model.rotary_emb.inv_freq, distance)

    def _prefill_group(self, state: SequenceState, new_pages: Sequence[EncodedPage], base: int) -> Tensor:
        """Prefill BOS at `base`, the new pages behind the kept ones, and the prompt; put the ring's tokens behind it.
        Returns the last hidden state (hidden size,)."""
        kept_pages = list(state.pages)
        prompt_count = len(state.prompt_token_ids)
        first_separator = 1 + prompt_count
        state.kept_count = first_separator + len(kept_pages)
        self.local.reserve(
            state.slot + 1, self.local.window + state.kept_count + len(new_pages), self.local.selected[0].shape[1]
        )
        position = kept_pages[-1].end_position if kept_pages else base + 1
        places = [_kept_place(base, 0, 1)]
        for page in new_pages:
            layout = self._layout(page)
            blocks = self.pool.allocate(layout.block_lengths)
            cached = CachedPage(page.page_index, layout, blocks, position, state.kept_count)
            state.pages.append(cached)
            state.kept_count += 1
            places.append(self._page_places(cached))
            position = cached.end_position
        places.append(_kept_place(position, 1, prompt_count))
        embed = self.model.model.language_model.embed_tokens
        bos = self.model.text_config.bos_token_id
        embeddings = torch.cat(
            [
                embed(torch.tensor([bos], device=self._device)),
                *(page.features.to(self._device, embed.weight.dtype) for page in new_pages),
                embed(torch.tensor(state.prompt_token_ids, dtype=torch.int64, device=self._device)),
            ]
        )
        hidden = prefill(
            self.model.model.language_model,
            embeddings,
            _joined(places, self._device),
            _joined([self._page_places(page) for page in kept_pages], self._device),
            pool=self.pool,
            local=self.local,
            slot=state.slot,
            chunk_tokens=self.settings.prefill_chunk_tokens,
        )
        self.pool.summarise([block for page in state.pages[len(kept_pages) :] for block in page.blocks])
        ring = min(state.output_count, self.local.window)
        next_position = position + prompt_count + ring
        if ring and next_position != state.next_position:
            self.local.turn_ring(state.slot, *self._angles(next_position - state.next_position))
        state.next_position = next_position
        state.rebuild_table(self._device)
        return hidden

    def _page_places(self, page: CachedPage) -> TokenPlaces:
        size = self.settings.block_tokens
        offsets = torch.tensor(page.layout.stream, dtype=torch.int64)
        columns = torch.tensor([block * size + place for block in page.blocks for place in range(size)])[: len(offsets)]
        pool_columns = torch.full((page.token_count,), -1, dtype=torch.int64)
        pool_columns[offsets] = columns.to(torch.int64)
        kept_columns = torch.full_like(pool_columns, -1)
        kept_columns[page.layout.separator] = page.separator_column
        positions = torch.arange(page.first_position, page.end_position)
        return TokenPlaces(positions, pool_columns, kept_columns)

    def _logits(self, hidden: Tensor) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self.model.lm_head(hidden).float().cpu().numpy()
        return logits


def _kept_place(position: int, column: int, count: int) -> TokenPlaces:
    columns = torch.arange(column, column + count)
    return TokenPlaces(torch.arange(position, position + count), torch.full_like(columns, -1), columns)


def _joined(places: Sequence[TokenPlaces], device: torch.device) -> TokenPlaces:
    empty = torch.zeros(0, dtype=torch.int64)
    total = sum(places, TokenPlaces(empty, empty, empty))
    return TokenPlaces(total.positions.to(device), total.pool_columns.to(device), total.kept_columns.to(device))


def _stop_ids(eos: int | list[int] | None) -> frozenset[int]:
    if eos is None:
        return frozenset()
    return frozenset([eos] if isinstance(eos, int) else eos)
