"""Hand-overs between page groups: what they compute, what they keep, and that memory stays within one group."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ocr2_core.ocr2.block_pool import BlockPool
from ocr2_core.ocr2.errors import DecoderError, PoolExhausted, UnknownPage
from ocr2_core.ocr2.model import SrSwaOcrModel, load_model
from ocr2_core.ocr2.model_decoder import ModelDecoder
from ocr2_core.ocr2.page_decoder import Boundary, EncodedPage
from ocr2_core.ocr2.selection import SelectionSettings
from tests.ocr2_core.ocr2.conftest import (
    feed,
    largest_difference,
    make_decoder,
    random_pages,
    random_tokens,
    save_checkpoint,
    small_config,
)
from tests.ocr2_core.ocr2.test_equals_transformers import transformers_logits

PROMPT = random_tokens(5, 9)
TOKENS = random_tokens(60)
# The same distance at other positions is not the same number in fp32: an angle at position p is off by up to p · 2⁻²⁴.
TOLERANCE = 5e-5


@pytest.fixture(scope="module")
def one_layer_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dense layer, window 8: keys and values of a token depend on that token and its position alone."""
    return save_checkpoint(tmp_path_factory.mktemp("one_layer"), small_config(window=8, layers=1))


@pytest.mark.parametrize("position_limit", [131_072, 300], ids=["unturned", "turned back"])
@pytest.mark.parametrize("fed_before", [3, 30], ids=["ring not full", "ring full"])
def test_carry_is_the_next_group_read_with_the_last_output_behind_its_prompt(
    one_layer_checkpoint: Path, fed_before: int, position_limit: int
) -> None:
    """Three groups in a row, against transformers fed each group as a prompt of its own and then the last output."""
    decoder = make_decoder(load_model(one_layer_checkpoint), position_limit=position_limit)
    pages = random_pages(10, side=5)
    sequence, _ = decoder.open_sequence(pages[:4], PROMPT)
    fed = TOKENS[:fed_before]
    feed(decoder, sequence, fed)
    for first in (3, 6):
        assert decoder.hand_over(sequence, [first], pages[first + 1 : first + 4], Boundary.CARRY) is None
        new = random_tokens(20, seed=first)
        ours = feed(decoder, sequence, new)
        theirs = transformers_logits(one_layer_checkpoint, pages[first : first + 4], PROMPT, [*fed[-8:], *new])
        assert largest_difference(ours, theirs[-20:]) < TOLERANCE
        fed = [*fed, *new]


def test_carry_equals_recompute_where_the_overlap_had_no_earlier_context(small_window_model: SrSwaOcrModel) -> None:
    """Three layers; the first group is the overlap page alone, so its keys depend on nothing that is dropped."""
    pages = random_pages(4)
    outputs = []
    for boundary, kept, new in ((Boundary.CARRY, [0], pages[1:]), (Boundary.RECOMPUTE, [], pages)):
        decoder = make_decoder(small_window_model)
        sequence, _ = decoder.open_sequence(pages[:1], PROMPT)
        feed(decoder, sequence, TOKENS[:20])
        assert decoder.hand_over(sequence, kept, new, boundary) is None
        outputs.append(feed(decoder, sequence, TOKENS[20:40]))
    assert largest_difference(*outputs) < 1e-5


@pytest.mark.parametrize("chunk", [7, 273 * 2 + 5])
def test_a_carried_group_may_be_prefilled_in_chunks(small_window_model: SrSwaOcrModel, chunk: int) -> None:
    """BOS, two new pages and the prompt are 552 tokens: the second size leaves a last chunk of one."""
    pages = random_pages(4)
    outputs = []
    for chunk_tokens in (100_000, chunk):
        decoder = make_decoder(small_window_model, prefill_chunk_tokens=chunk_tokens)
        sequence, _ = decoder.open_sequence(pages[:2], PROMPT)
        feed(decoder, sequence, TOKENS[:12])
        decoder.hand_over(sequence, [1], pages[2:], Boundary.CARRY)
        outputs.append(feed(decoder, sequence, TOKENS[12:24]))
    assert largest_difference(*outputs) < 1e-5


def test_carry_and_recompute_differ_by_what_the_dropped_pages_told_the_overlap(
    small_window_model: SrSwaOcrModel, one_layer_checkpoint: Path
) -> None:
    pages = random_pages(6)
    differences = []
    for model in (load_model(one_layer_checkpoint), small_window_model):
        outputs = []
        for boundary, kept, new in ((Boundary.CARRY, [2], pages[3:5]), (Boundary.RECOMPUTE, [], pages[2:5])):
            decoder = make_decoder(model)
            sequence, _ = decoder.open_sequence(pages[:3], PROMPT)
            feed(decoder, sequence, TOKENS[:20])
            decoder.hand_over(sequence, kept, new, boundary)
            outputs.append(feed(decoder, sequence, TOKENS[20:30]))
        differences.append(largest_difference(*outputs))
    assert differences[0] < TOLERANCE
    assert differences[1] > 1e-3


def test_restart_equals_a_new_sequence(small_window_model: SrSwaOcrModel) -> None:
    pages = random_pages(6)
    fresh = make_decoder(small_window_model)
    number, fresh_first = fresh.open_sequence(pages[2:5], PROMPT)
    fresh_logits = feed(fresh, number, TOKENS[:12])
    decoder = make_decoder(small_window_model)
    sequence, _ = decoder.open_sequence(pages[:3], PROMPT)
    feed(decoder, sequence, TOKENS[20:40])
    first = decoder.hand_over(sequence, [], pages[2:5], Boundary.RESTART)
    assert np.array_equal(first, fresh_first)
    assert np.array_equal(feed(decoder, sequence, TOKENS[:12]), fresh_logits)


def test_carried_bf16_keys_stay_as_good_as_recomputed_ones(one_layer_checkpoint: Path) -> None:
    """Eight hand-overs; in bf16 the ring is turned each time, the overlap never."""
    pages = random_pages(26, side=5)
    logits = []
    for dtype in (torch.float32, torch.bfloat16):
        decoder = make_decoder(load_model(one_layer_checkpoint, dtype=dtype))
        sequence, _ = decoder.open_sequence(pages[:4], PROMPT)
        for first in range(3, 24, 3):
            feed(decoder, sequence, random_tokens(3, first))
            decoder.hand_over(sequence, [first], pages[first + 1 : min(first + 4, 26)], Boundary.CARRY)
        logits.append(feed(decoder, sequence, TOKENS[:20]))
    assert np.linalg.norm(logits[0] - logits[1]) / np.linalg.norm(logits[0]) < 2e-2


def test_positions_move_by_pages_and_never_by_text(small_window_model: SrSwaOcrModel) -> None:
    decoder = make_decoder(small_window_model, position_limit=300)
    pages = random_pages(20, side=5)
    sequence, _ = decoder.open_sequence(pages[:3], PROMPT)
    seen = []
    for first in range(2, 18, 2):
        feed(decoder, sequence, TOKENS)
        decoder.hand_over(sequence, [first], pages[first + 1 : first + 3], Boundary.CARRY)
        seen.append(decoder._sequences[sequence].next_position)
    # 62 = two pages; behind three pages of 31, BOS, prompt and a ring of 8 stand at 107; past 300 all begins again
    assert seen == [107 + 62, 107 + 124, 107 + 186, 107, 107 + 62, 107 + 124, 107 + 186, 107]


@pytest.mark.parametrize("boundary", list(Boundary))
def test_memory_never_exceeds_one_group(
    small_window_model: SrSwaOcrModel, boundary: Boundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watched at every write into the pool, so also in the middle of each hand-over. The pool holds one group and no
    block more: a hand-over that allocated before it released would fail."""
    group_pages = 4
    decoder = make_decoder(small_window_model, pool_blocks=group_pages * 17, prefill_chunk_tokens=64)
    token_bytes = 3 * 4 * 16 * 2 * 4
    bound = (group_pages * 273 + (1 + len(PROMPT)) + 8) * token_bytes
    seen: list[int] = []
    write = BlockPool.write

    def watch() -> None:
        usage = decoder.usage()
        seen.append(usage.kv_bytes)
        assert usage.kv_bytes <= bound
        assert usage.index_bytes == decoder.pool.used_count * 3 * 4 * 16 * 4
        held = int(decoder.pool.block_lengths.sum()) + sum(
            state.kept_count + 8 for state in decoder._sequences.values()
        )
        assert usage.kv_bytes == held * token_bytes

    def watched_write(pool: BlockPool, *arguments: object) -> None:
        write(pool, *arguments)  # type: ignore[arg-type]
        watch()

    monkeypatch.setattr(BlockPool, "write", watched_write)
    pages = random_pages(13)
    sequence, _ = decoder.open_sequence(pages[:4], PROMPT)
    for first in (3, 6, 9):
        for token in TOKENS[:10]:
            decoder.step({sequence: token})
            watch()
        kept = [first] if boundary is Boundary.CARRY else []
        decoder.hand_over(sequence, kept, pages[first + len(kept) : first + 4], boundary)
    assert max(seen) == bound
    decoder.close_sequence(sequence)
    assert decoder.usage().kv_bytes == 0


def poison(decoder: ModelDecoder) -> None:
    free = torch.tensor(decoder.pool._free)
    decoder.pool.keys[:, :, free] = decoder.pool.values[:, :, free] = float("nan")
    decoder.pool.summaries[:, free] = float("nan")


@pytest.mark.parametrize("side", [16, 5])
@pytest.mark.parametrize(
    "selection", [SelectionSettings(1, None), SelectionSettings(1, 34, refresh_steps=3)], ids=["all", "sparse"]
)
def test_poison_in_released_blocks_reaches_nothing(
    small_window_model: SrSwaOcrModel, selection: SelectionSettings, side: int
) -> None:
    pages = random_pages(8, side=side)
    outputs = []
    for is_poisoned in (False, True):
        decoder = make_decoder(small_window_model, selection=selection)
        if is_poisoned:
            poison(decoder)
        sequence, _ = decoder.open_sequence(pages[:5], PROMPT)
        logits = [feed(decoder, sequence, TOKENS[:5])]
        decoder.set_current_page(sequence, 2)
        for released in (0, 1):
            decoder.release_page(sequence, released)
            if is_poisoned:
                poison(decoder)
            logits.append(feed(decoder, sequence, TOKENS[5:12]))
        decoder.hand_over(sequence, [4], pages[5:8], Boundary.CARRY)
        if is_poisoned:
            poison(decoder)
        logits.append(feed(decoder, sequence, TOKENS[12:20]))
        outputs.append(np.concatenate(logits))
    assert np.isfinite(outputs[1]).all()
    assert np.array_equal(outputs[0], outputs[1])


def test_nothing_of_a_released_page_survives(one_layer_checkpoint: Path) -> None:
    """Two readings that differ in one page agree once that page is released (one layer, so no other key saw it)."""
    pages = random_pages(5)
    changed = [*pages[:2], EncodedPage(2, 273, random_pages(1, seed=77)[0].features), *pages[3:]]
    model = load_model(one_layer_checkpoint)
    logits = []
    for group in (pages, changed):
        decoder = make_decoder(model, selection=SelectionSettings(1, 40, refresh_steps=3))
        sequence, _ = decoder.open_sequence(group, PROMPT)
        decoder.set_current_page(sequence, 2)
        before = feed(decoder, sequence, TOKENS[:10])
        decoder.set_current_page(sequence, 3)
        decoder.release_page(sequence, 2)
        logits.append((before, feed(decoder, sequence, TOKENS[10:30])))
        assert decoder._sequences[sequence].kept_count == 1 + len(PROMPT) + 4
        decoder.release_page(sequence, 0)
        feed(decoder, sequence, TOKENS[:2])
    assert largest_difference(logits[0][0], logits[1][0]) > 1e-3
    assert largest_difference(logits[0][1], logits[1][1]) < 1e-6


def test_a_hand_over_that_does_not_fit_changes_nothing(small_window_model: SrSwaOcrModel) -> None:
    pages = random_pages(8)
    outputs = []
    for fails in (False, True):
        decoder = make_decoder(small_window_model, pool_blocks=3 * 17)
        sequence, _ = decoder.open_sequence(pages[:3], PROMPT)
        if fails:
            with pytest.raises(PoolExhausted, match="34 of 51 blocks free, 51 are needed"):
                decoder.hand_over(sequence, [2], pages[3:6], Boundary.CARRY)
        outputs.append(feed(decoder, sequence, TOKENS[:5]))
    assert np.array_equal(*outputs)


def test_requests_that_make_no_sense_are_refused(small_window_model: SrSwaOcrModel) -> None:
    pages = random_pages(4)
    decoder = make_decoder(small_window_model)
    sequence, _ = decoder.open_sequence(pages[:2], PROMPT)
    with pytest.raises(DecoderError, match="boundary restart keeps no pages"):
        decoder.hand_over(sequence, [1], pages[2:], Boundary.RESTART)
    with pytest.raises(UnknownPage, match="index \\[3\\]"):
        decoder.hand_over(sequence, [3], [], Boundary.CARRY)
    with pytest.raises(UnknownPage, match="page index 9"):
        decoder.release_page(sequence, 9)
