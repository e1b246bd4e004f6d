"""Bringing a sequence's page groups into the block pool and out of it: prefill, release, and re-basing of positions.

How positions run is told in `sequence_state.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ocr2_core.ocr2.block_pool import BlockPool
from ocr2_core.ocr2.errors import DecoderError, PoolExhausted
from ocr2_core.ocr2.local_cache import LocalCache, turn_angles, turn_keys
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.page_decoder import EncodedPage
from ocr2_core.ocr2.page_layout import PageLayout, page_layout
from ocr2_core.ocr2.prefill import TokenPlaces, prefill
from ocr2_core.ocr2.sequence_state import CachedPage, SequenceState


class GroupCache:
    """Works on the states of sequences; holds none itself."""

    def __init__(
        self,
        model: SrSwaOcrModel,
        pool: BlockPool,
        local: LocalCache,
        *,
        prefill_chunk_tokens: int,
        position_limit: int,
    ) -> None:
        """Raises DecoderError for a model whose keys cannot be turned (its rotary frequencies depend on the length)."""
        self._language_model = model.model.language_model
        rope_type = self._language_model.rotary_emb.rope_type
        if rope_type in ("dynamic", "longrope"):
            raise DecoderError(
                f"rotary embedding of type {rope_type!r} is not supported: its frequencies move with length"
            )
        self._bos_token_id = model.text_config.bos_token_id
        self._pool, self._local = pool, local
        self._chunk_tokens, self._position_limit = prefill_chunk_tokens, position_limit
        self._device = pool.keys.device

    def check(
        self, pages: Sequence[EncodedPage], kept_page_indexes: Sequence[int] = (), released_blocks: int = 0
    ) -> None:
        """Whether `pages` can join the kept ones, once `released_blocks` came back.

        Raises DecoderError for a page given twice or with features of another shape than it says, PoolExhausted where
        the pool has too few blocks.
        """
        indexes = [*kept_page_indexes, *(page.page_index for page in pages)]
        if len(set(indexes)) < len(indexes):
            raise DecoderError(f"a page is given twice: page indexes {indexes}")
        for page in pages:
            expected = (page.token_count, self._language_model.embed_tokens.embedding_dim)
            if tuple(page.features.shape) != expected:
                raise DecoderError(
                    f"page index {page.page_index} has features {tuple(page.features.shape)}, expected {expected}"
                )
        wanted = sum(len(self._layout(page).block_lengths) for page in pages)
        free = self._pool.free_count + released_blocks
        if wanted > free:
            raise PoolExhausted(wanted, free, self._pool.block_count)

    def drop_page(self, state: SequenceState, page: CachedPage) -> None:
        """Release a page's blocks and its separator; the last separator moves into the hole. The block table is left
        to be rebuilt."""
        self._pool.release(page.blocks)
        state.pages.remove(page)
        last = state.kept_count - 1
        self._local.drop_kept(state.slot, page.separator_column, last)
        for other in state.pages:
            if other.separator_column == last:
                other.separator_column = page.separator_column
        state.kept_count = last

    def prefill_group(self, state: SequenceState, new_pages: Sequence[EncodedPage]) -> Tensor:
        """Prefill BOS before the pages still cached, the new pages behind them, and the prompt; put the ring's tokens
        behind that. Returns the last hidden state (hidden size,)."""
        base = self._base(state, new_pages)
        kept_pages = list(state.pages)
        prompt_count = len(state.prompt_token_ids)
        state.kept_count = 1 + prompt_count + len(kept_pages)
        columns = self._local.window + state.kept_count + len(new_pages)
        self._local.reserve(state.slot + 1, columns, 0)
        position = kept_pages[-1].end_position if kept_pages else base + 1
        places = [_kept_places(base, 0, 1)]
        for page in new_pages:
            layout = self._layout(page)
            blocks = self._pool.allocate(layout.block_lengths)
            cached = CachedPage(page.page_index, layout, blocks, position, state.kept_count)
            state.pages.append(cached)
            state.kept_count += 1
            places.append(_page_places(cached))
            position = cached.end_position
        places.append(_kept_places(position, 1, prompt_count))
        hidden = prefill(
            self._language_model,
            self._embeddings(state, new_pages),
            _joined(places, self._device),
            _joined([_page_places(page) for page in kept_pages], self._device),
            pool=self._pool,
            local=self._local,
            slot=state.slot,
            chunk_tokens=self._chunk_tokens,
        )
        self._pool.summarise([block for page in state.pages[len(kept_pages) :] for block in page.blocks])
        self._move_ring(state, position + prompt_count)
        state.rebuild_table(self._device)
        return hidden

    def _layout(self, page: EncodedPage) -> PageLayout:
        return page_layout(page.token_count, page.row_lengths, self._pool.block_tokens)

    def _embeddings(self, state: SequenceState, new_pages: Sequence[EncodedPage]) -> Tensor:
        embed = self._language_model.embed_tokens
        return torch.cat(
            [
                embed(torch.tensor([self._bos_token_id], device=self._device)),
                *(page.features.to(self._device, embed.weight.dtype) for page in new_pages),
                embed(torch.tensor(state.prompt_token_ids, dtype=torch.int64, device=self._device)),
            ]
        )

    def _base(self, state: SequenceState, new_pages: Sequence[EncodedPage]) -> int:
        """BOS's position in the next group: right before the first kept page, whose keys so need no turn. Where that
        would put the group beyond the position limit, the kept pages are turned back to the start instead."""
        if not state.pages:
            return 0
        base = state.pages[0].first_position - 1
        end = state.pages[-1].end_position + sum(page.token_count for page in new_pages) + len(state.prompt_token_ids)
        if end > self._position_limit and base > 0:
            self._turn_pages(state, -base)
            return 0
        return base

    def _turn_pages(self, state: SequenceState, distance: int) -> None:
        cosine, sine = self._angles(distance)
        blocks = [block for page in state.pages for block in page.blocks]
        index = torch.tensor(blocks, dtype=torch.int64, device=self._device)
        separators = torch.tensor([page.separator_column for page in state.pages], device=self._device)
        for layer, keys in enumerate(self._pool.keys):
            keys[:, index] = turn_keys(keys[:, index], cosine, sine)
            kept = self._local.kept_keys(layer)[state.slot]
            kept[:, separators] = turn_keys(kept[:, separators], cosine, sine)
        self._pool.summarise(blocks)
        for page in state.pages:
            page.first_position += distance

    def _move_ring(self, state: SequenceState, first_position: int) -> None:
        """Let the oldest token of the ring stand at `first_position`, by turning the ring's keys once."""
        held = min(state.output_count, self._local.window)
        distance = first_position + held - state.next_position
        if held and distance:
            self._local.turn_ring(state.slot, *self._angles(distance))
        state.next_position = first_position + held

    def _angles(self, distance: int) -> tuple[Tensor, Tensor]:
        return turn_angles(self._language_model.rotary_emb.inv_freq, distance)


def _page_places(page: CachedPage) -> TokenPlaces:
    size = page.layout.block_tokens
    columns = [block * size + place for block in page.blocks for place in range(size)]
    pool_columns = torch.full((page.token_count,), -1, dtype=torch.int64)
    pool_columns[torch.tensor(page.layout.stream, dtype=torch.int64)] = torch.tensor(
        columns[: len(page.layout.stream)], dtype=torch.int64
    )
    kept_columns = torch.full_like(pool_columns, -1)
    kept_columns[page.layout.separator] = page.separator_column
    return TokenPlaces(torch.arange(page.first_position, page.end_position), pool_columns, kept_columns)


def _kept_places(position: int, column: int, count: int) -> TokenPlaces:
    columns = torch.arange(column, column + count)
    return TokenPlaces(torch.arange(position, position + count), torch.full_like(columns, -1), columns)


def _joined(places: Sequence[TokenPlaces], device: torch.device) -> TokenPlaces:
    empty = torch.zeros(0, dtype=torch.int64)
    total = sum(places, TokenPlaces(empty, empty, empty))
    return TokenPlaces(total.positions.to(device), total.pool_columns.to(device), total.kept_columns.to(device))
