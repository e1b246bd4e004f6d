"""Selection, batching and prefill of the model decoder."""

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ocr2_core.errors import EngineError
from ocr2_core.ocr2.errors import DecoderError, GateFileError, PoolExhausted, UnknownPage, UnknownSequence
from ocr2_core.ocr2.gates import GATE_FILE, save_gates
from ocr2_core.ocr2.model import SrSwaOcrModel, load_model
from ocr2_core.ocr2.model_decoder import ModelDecoder
from ocr2_core.ocr2.page_decoder import EncodedPage
from ocr2_core.ocr2.selection import SelectionSettings
from ocr2_core.ocr2.sr_swa_attention import sr_swa_attention_reference
from tests.ocr2_core.ocr2.conftest import (
    feed,
    largest_difference,
    make_decoder,
    random_pages,
    random_tokens,
)

# 6 pages of 17 blocks; two neighbouring pages need 34 of the 40 blocks.
SPARSE = SelectionSettings(page_budget=1, block_budget=40, refresh_steps=3)


def read_pages(decoder: ModelDecoder, pages: int = 6, steps: int = 24, seed: int = 5) -> NDArray[np.float32]:
    """Open a sequence and decode, moving to the next page every four steps."""
    sequence, first = decoder.open_sequence(random_pages(pages), random_tokens(5, 9))
    logits = [first]
    for step, token in enumerate(random_tokens(steps, seed)):
        if step % 4 == 3:
            decoder.set_current_page(sequence, min(step // 4 + 1, pages - 1))
        logits.append(decoder.step({sequence: token})[sequence])
    return np.stack(logits)


def test_keys_attended_a_step_are_exactly_the_bound(small_window_model: SrSwaOcrModel) -> None:
    decoder = make_decoder(small_window_model, selection=SPARSE)
    sequence, _ = decoder.open_sequence(random_pages(6), random_tokens(5))
    for step, token in enumerate(random_tokens(20)):
        decoder.step({sequence: token})
        bound = (1 + 5 + 6) + min(step + 1, 8) + 40 * 16
        assert [int((bias[sequence] == 0).sum()) for bias in decoder.local.bias] == [bound] * 3
        assert all(len(set(selected[sequence].tolist())) == 40 for selected in decoder.local.selected)


def test_selecting_fewer_changes_the_result_and_selecting_all_does_not(small_window_model: SrSwaOcrModel) -> None:
    everything = read_pages(make_decoder(small_window_model))
    enough = SelectionSettings(page_budget=1, block_budget=6 * 17, refresh_steps=3)
    assert np.array_equal(read_pages(make_decoder(small_window_model, selection=enough)), everything)
    assert largest_difference(read_pages(make_decoder(small_window_model, selection=SPARSE)), everything) > 1e-3


def test_gathering_equals_reading_blocks_in_place(small_window_model: SrSwaOcrModel) -> None:
    gathered = read_pages(make_decoder(small_window_model, selection=SPARSE))
    in_place = read_pages(make_decoder(small_window_model, selection=SPARSE, kernel=sr_swa_attention_reference))
    assert largest_difference(gathered, in_place) < 1e-5


def test_the_result_does_not_depend_on_which_blocks_hold_what(small_window_model: SrSwaOcrModel) -> None:
    ordered = read_pages(make_decoder(small_window_model, selection=SPARSE))
    for free in (random.Random(3).sample(range(1, 401), 400), [*range(60, 100), *range(200, 300)]):
        scattered = make_decoder(small_window_model, selection=SPARSE)
        scattered.pool._free = free
        assert largest_difference(read_pages(scattered), ordered) < 1e-5


def test_the_page_being_read_and_the_next_are_selected_whole(small_window_model: SrSwaOcrModel) -> None:
    decoder = make_decoder(small_window_model, selection=SelectionSettings(1, 36, refresh_steps=100))
    sequence, _ = decoder.open_sequence(random_pages(6), random_tokens(5))
    for page in (0, 3, 5, 2):
        decoder.set_current_page(sequence, page)
        decoder.step({sequence: 7})
        wanted = set(range(1 + 17 * page, 1 + 17 * min(page + 2, 6)))
        for selected in decoder.local.selected:
            assert wanted <= set(selected[sequence].tolist())


def test_selection_is_refreshed_every_r_steps_and_at_a_page_change(small_window_model: SrSwaOcrModel) -> None:
    decoder = make_decoder(small_window_model, selection=SelectionSettings(1, 40, refresh_steps=4))
    sequence, _ = decoder.open_sequence(random_pages(6), random_tokens(5))
    refreshed = []
    for step, token in enumerate(random_tokens(12)):
        if step == 6:
            decoder.set_current_page(sequence, 1)
        decoder.local.selected[0].fill_(-1)
        decoder.step({sequence: token})
        refreshed.append(bool((decoder.local.selected[0][sequence] > 0).all()))
    assert [step for step, is_new in enumerate(refreshed) if is_new] == [0, 4, 6, 10]


def test_many_in_a_batch_equal_each_alone(small_window_model: SrSwaOcrModel) -> None:
    """Ragged pages, page shapes, prompts, starts and page changes, with selection."""
    groups = [random_pages(6), random_pages(3, seed=2), random_pages(9, side=5, seed=3), random_pages(5, seed=4)]
    prompts = [random_tokens(n, n) for n in (5, 2, 7, 5)]
    fed = [random_tokens(30, 20 + n) for n in range(4)]
    starts = [0, 3, 4, 9]
    moves = {(0, 10): 2, (2, 5): 4, (3, 1): 1, (3, 17): 3}
    selection = SelectionSettings(page_budget=1, block_budget=36, refresh_steps=3)

    def decode(numbers: list[int]) -> dict[int, NDArray[np.float32]]:
        decoder = make_decoder(small_window_model, selection=selection)
        sequences: dict[int, int] = {}
        logits: dict[int, list[NDArray[np.float32]]] = {n: [] for n in numbers}
        for step in range(40):
            tokens = {}
            for n in numbers:
                own = step - starts[n]
                if own == 0:
                    sequences[n], first = decoder.open_sequence(groups[n], prompts[n])
                    logits[n].append(first)
                if 0 <= own < 30:
                    if (n, own) in moves:
                        decoder.set_current_page(sequences[n], moves[n, own])
                    tokens[sequences[n]] = fed[n][own]
            answers = decoder.step(tokens)
            for n in numbers:
                if sequences.get(n) in tokens:
                    logits[n].append(answers[sequences[n]])
        return {n: np.stack(rows) for n, rows in logits.items()}

    together = decode([0, 1, 2, 3])
    for n in range(4):
        assert largest_difference(together[n], decode([n])[n]) < 1e-5


@pytest.mark.parametrize("chunk", [1, 16, 100, 273 * 2 + 5, 273 * 2 + 6])
def test_chunked_prefill_equals_one_shot(small_window_model: SrSwaOcrModel, chunk: int) -> None:
    """Also a last chunk of one token: BOS, two pages and five prompt tokens are 552 tokens, one more than 551."""
    pages = random_pages(2) if chunk > 1 else random_pages(2, side=3)
    whole = make_decoder(small_window_model, prefill_chunk_tokens=100_000)
    chunked = make_decoder(small_window_model, prefill_chunk_tokens=chunk)
    outputs = []
    for decoder in (whole, chunked):
        sequence, first = decoder.open_sequence(pages, random_tokens(5))
        outputs.append(np.concatenate([first[None], feed(decoder, sequence, random_tokens(10))]))
    assert largest_difference(*outputs) < 1e-5
    assert largest_difference(whole.pool.keys, chunked.pool.keys) < 1e-5
    assert largest_difference(whole.pool.summaries, chunked.pool.summaries) < 1e-5


def test_a_closed_sequence_leaves_nothing_to_the_next_in_its_place(small_window_model: SrSwaOcrModel) -> None:
    decoder = make_decoder(small_window_model, selection=SPARSE)
    fresh = read_pages(make_decoder(small_window_model, selection=SPARSE), pages=5)
    read_pages(decoder, pages=6, seed=8)
    decoder.close_sequence(0)
    assert decoder.usage().kv_bytes == decoder.usage().index_bytes == 0
    assert np.array_equal(read_pages(decoder, pages=5), fresh)


def test_a_pool_too_small_is_told_before_anything_is_allocated(small_window_model: SrSwaOcrModel) -> None:
    decoder = make_decoder(small_window_model, pool_blocks=40)
    sequence, _ = decoder.open_sequence(random_pages(1), random_tokens(3))
    before = decoder.usage()
    with pytest.raises(PoolExhausted, match="23 of 40 blocks free, 34 are needed"):
        decoder.open_sequence(random_pages(2), random_tokens(3))
    assert decoder.usage() == before
    assert np.isfinite(decoder.step({sequence: 5})[sequence]).all()


def test_usage_is_what_was_promised(small_window_model: SrSwaOcrModel) -> None:
    decoder = make_decoder(small_window_model)
    decoder.open_sequence(random_pages(2), random_tokens(3))
    decoder.open_sequence(random_pages(3, side=5), random_tokens(4))
    expected = decoder.sequence_bytes([273, 273], 3) + decoder.sequence_bytes([31, 31, 31], 4)
    assert decoder.usage().kv_bytes == expected
    # 3 layers, 4 heads of 16, keys and values, 4 bytes; 34 + 6 blocks of 16; BOS, prompt, separators and ring
    assert expected == 3 * 4 * 16 * 2 * 4 * (40 * 16 + (1 + 3 + 2 + 8) + (1 + 4 + 3 + 8))


def test_names_that_do_not_exist_are_refused(small_window_model: SrSwaOcrModel) -> None:
    decoder = make_decoder(small_window_model)
    sequence, _ = decoder.open_sequence(random_pages(2), random_tokens(3))
    with pytest.raises(UnknownPage, match="page index 2 is not in the cache"):
        decoder.set_current_page(sequence, 2)
    with pytest.raises(UnknownSequence, match="sequence 7 is not open"):
        decoder.step({7: 5})
    with pytest.raises(DecoderError, match="at least one page"):
        decoder.open_sequence([], random_tokens(3))
    with pytest.raises(DecoderError, match=r"given twice: page indexes \[0, 0\]"):
        decoder.open_sequence(random_pages(1) * 2, random_tokens(3))
    with pytest.raises(DecoderError, match=r"page index 4 has features \(31, 64\), expected \(273, 64\)"):
        decoder.open_sequence([EncodedPage(4, 273, random_pages(1, side=5)[0].features)], random_tokens(3))
    assert decoder.step({}) == {}
    assert (decoder.vocabulary_size, decoder.stop_token_ids, decoder.page_token_id) == (96, frozenset({1}), 2)


def checkpoint_with_gates(model: SrSwaOcrModel, folder: Path, size: int, seed: int | None) -> Path:
    model.save_pretrained(folder)
    generator = torch.Generator().manual_seed(seed or 0)
    save_gates(
        folder,
        {
            f"layers.{layer}.{gate}.{part}_proj": torch.eye(16).repeat(4, 1, 1)
            if seed is None
            else torch.randn(4, 16, size, generator=generator)
            for layer in range(3)
            for gate in ("page_gate", "token_selector")
            for part in ("query", "key")
        },
    )
    return folder


def test_trained_gates_steer_the_selection(small_window_model: SrSwaOcrModel, tmp_path: Path) -> None:
    parameter_free = read_pages(make_decoder(small_window_model, selection=SPARSE))
    same = load_model(checkpoint_with_gates(small_window_model, tmp_path / "same", 16, None))
    assert largest_difference(read_pages(make_decoder(same, selection=SPARSE)), parameter_free) < 1e-5
    other = load_model(checkpoint_with_gates(small_window_model, tmp_path / "other", 6, 1))
    assert largest_difference(read_pages(make_decoder(other, selection=SPARSE)), parameter_free) > 1e-3
    other.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / GATE_FILE).read_bytes() == (tmp_path / "other" / GATE_FILE).read_bytes()


def test_a_checkpoint_with_gates_of_another_model_is_refused(small_window_model: SrSwaOcrModel, tmp_path: Path) -> None:
    small_window_model.save_pretrained(tmp_path)
    save_gates(tmp_path, {"layers.0.page_gate.query_proj": torch.zeros(4, 16, 4)})
    with pytest.raises(GateFileError, match=r"missing layers\.0\.page_gate\.key_proj"):
        load_model(tmp_path)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="there is no model folder"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(EngineError, match="cannot be loaded"):
        load_model(tmp_path)


def test_weights_are_checked_against_their_digests(checkpoint: Path) -> None:
    digest = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    load_model(checkpoint, sha256={"model.safetensors": digest})
    with pytest.raises(EngineError, match=f"has SHA-256 {digest}, expected 0000"):
        load_model(checkpoint, sha256={"model.safetensors": "0" * 64})
    with pytest.raises(EngineError, match=r"without an expected SHA-256: model\.safetensors"):
        load_model(checkpoint, sha256={})


def test_a_sequence_whose_pages_were_all_released_decodes_on(small_window_model: SrSwaOcrModel) -> None:
    for kernel in (None, sr_swa_attention_reference):
        decoder = make_decoder(small_window_model, selection=SPARSE, kernel=kernel)
        sequence, _ = decoder.open_sequence(random_pages(2), random_tokens(3))
        feed(decoder, sequence, random_tokens(3))
        for page in (1, 0):
            decoder.release_page(sequence, page)
        assert np.isfinite(feed(decoder, sequence, random_tokens(12))).all()
        assert decoder.pool.used_count == 0


def test_float16_is_never_run(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="Use bfloat16 or float32"):
        load_model(checkpoint, dtype=torch.float16)
    load_model(checkpoint).to(torch.float16).save_pretrained(tmp_path)
    assert load_model(tmp_path).dtype is torch.float32
