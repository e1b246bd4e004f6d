"""Infinite decoding on the real decoder: a random checkpoint from a folder, and scripted text over real steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ocr2_core.engine import PageImage
from ocr2_core.errors import EngineError
from ocr2_core.ledger import reconcile
from ocr2_core.ocr2.engine import Ocr2Engine
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.page_decoder import Boundary, EncodedPage
from ocr2_core.ocr2.page_layout import page_layout
from ocr2_core.ocr2.page_model import CheckpointPageModel, ModelOptions, TokenizerVocabulary
from tests.ocr2_core.ocr2.conftest import make_decoder, random_pages, save_checkpoint, small_config
from tests.ocr2_core.ocr2.decode import read, settings
from tests.ocr2_core.ocr2.scripted_decoder import Fault, Script, ScriptedDecoder, Words

TAGS = ["<|det|>", "<|/det|>", "<table>", "</table>", "<tr>", "</tr>", "<td>", "</td>"]


def byte_tokenizer(*, with_page_token: bool = True, tags: Sequence[str] = TAGS) -> PreTrainedTokenizerFast:
    """A token a byte, and the tags of the model family."""
    first = ["<bos>", "<eos>", "<PAGE>" if with_page_token else "<unused>", "<image>", *tags]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*first, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", additional_special_tokens=first[2:]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page-model")
    config = small_config(window=32)
    config.text_config.vocab_size = 272
    save_checkpoint(folder, config)
    byte_tokenizer().save_pretrained(folder)
    processor = {"image_processor": {"size": {"height": 128, "width": 128}, "tile_size": 64}, "patch_size": 8}
    (folder / "processor_config.json").write_text(json.dumps({**processor, "downsample_ratio": 4}))
    return folder


def test_the_vocabulary_of_a_tokenizer() -> None:
    vocabulary = TokenizerVocabulary(byte_tokenizer(), frozenset({1}))
    assert vocabulary.page_marker_token_ids == (2,)
    assert vocabulary.marker_length([50, 2]) == 1
    assert vocabulary.marker_length([2, 50]) == vocabulary.marker_length([]) == 0
    assert vocabulary.structure.row_ends == {4 + TAGS.index("</tr>")}
    assert {1, 2} < vocabulary.structure.all
    assert vocabulary.text(vocabulary.group_prompt_token_ids) == "Multi page parsing."
    assert vocabulary.text([4, *vocabulary.single_prompt_token_ids, 5]) == "<|det|>document parsing.<|/det|>"


def test_a_tokenizer_without_a_page_token_spells_the_marker() -> None:
    tokenizer = byte_tokenizer(with_page_token=False)
    vocabulary = TokenizerVocabulary(tokenizer, frozenset({1}))
    assert len(vocabulary.page_marker_token_ids) == 6
    written = tokenizer.encode("one <b> two<PAGE>", add_special_tokens=False)
    assert [vocabulary.marker_length(written[:end]) for end in range(len(written))] == [0] * len(written)
    assert vocabulary.marker_length(written) == 6


def test_a_tokenizer_of_another_model_is_refused() -> None:
    with pytest.raises(EngineError, match=r"no <\|det\|> token"):
        TokenizerVocabulary(byte_tokenizer(tags=()), frozenset({1}))


@pytest.mark.parametrize("boundary", ["restart", "carry", "recompute"])
def test_a_random_checkpoint_gives_every_page_a_result(folder: Path, boundary: str) -> None:
    engine = Ocr2Engine(
        model_path=folder, page_chunk_size=3, boundary=boundary, max_page_tokens=12, dtype="float32", device="cpu"
    )
    chance = np.random.default_rng(3)
    pages = [
        PageImage(page_index=index, image=chance.integers(0, 255, (160, 120), np.uint8), dpi=72) for index in range(7)
    ]
    results = list(engine.read_pages(pages))
    counts = reconcile((result.ledger for result in results), 7)
    assert counts.page_count == 7
    # random weights write no end of a page: all but none run into their budget, and none of those is ok
    assert all(result.ledger.token_count <= 12 for result in results)
    assert all(result.ledger.reason for result in results if result.ledger.token_count == 12)
    again = list(engine.read_pages(pages))
    assert [result.page for result in again] == [result.page for result in results]
    assert engine.report is not None
    assert 0 < engine.report.peak_kv_bytes <= engine.report.pool_bytes * 2
    engine.close()


def test_what_cannot_be_loaded_says_why(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="dtype"):
        CheckpointPageModel.load(ModelOptions(str(folder), dtype="int3"))
    with pytest.raises(EngineError, match="no usable tokenizer"):
        CheckpointPageModel.load(ModelOptions(str(tmp_path)))


class ScriptOverModel(ScriptedDecoder):
    """The scripted decoder's text, while every call is made to a real decoder too."""

    def __init__(self, words: Words, model: SrSwaOcrModel) -> None:
        super().__init__(words)
        self.pages = random_pages(20, side=4)
        # a group's blocks and not one more
        self.real = make_decoder(model, pool_blocks=4 * len(page_layout(21).block_lengths))
        self.numbers: dict[int, int] = {}

    def _real_pages(self, pages: Sequence[EncodedPage]) -> list[EncodedPage]:
        return [self.pages[page.page_index] for page in pages]

    def open_sequence(
        self, pages: Sequence[EncodedPage], prompt_token_ids: Sequence[int]
    ) -> tuple[int, NDArray[np.float32]]:
        number, logits = super().open_sequence(pages, prompt_token_ids)
        self.numbers[number], real_logits = self.real.open_sequence(self._real_pages(pages), [7, 8])
        assert np.isfinite(real_logits).all()
        return number, logits

    def hand_over(
        self, sequence: int, kept_page_indexes: Sequence[int], new_pages: Sequence[EncodedPage], boundary: Boundary
    ) -> NDArray[np.float32] | None:
        real_logits = self.real.hand_over(
            self.numbers[sequence], kept_page_indexes, self._real_pages(new_pages), boundary
        )
        assert (real_logits is None) == (boundary is not Boundary.RESTART)
        return super().hand_over(sequence, kept_page_indexes, new_pages, boundary)

    def step(self, token_ids: dict[int, int]) -> dict[int, NDArray[np.float32]]:
        real = self.real.step({self.numbers[sequence]: token % 90 for sequence, token in token_ids.items()})
        assert all(np.isfinite(logits).all() for logits in real.values())
        return super().step(token_ids)

    def set_current_page(self, sequence: int, page_index: int) -> None:
        self.real.set_current_page(self.numbers[sequence], page_index)
        super().set_current_page(sequence, page_index)

    def release_page(self, sequence: int, page_index: int) -> None:
        self.real.release_page(self.numbers[sequence], page_index)
        super().release_page(sequence, page_index)

    def close_sequence(self, sequence: int) -> None:
        self.real.close_sequence(self.numbers.pop(sequence))
        super().close_sequence(sequence)


@pytest.mark.parametrize("boundary", ["restart", "carry", "recompute"])
@pytest.mark.parametrize(("overlap", "early"), [(0, False), (1, False), (1, True), (2, False)])
def test_the_real_decoder_takes_every_move(
    small_window_model: SrSwaOcrModel, boundary: str, overlap: int, early: bool
) -> None:
    torch.set_num_threads(1)
    script = Script(Words(), 13, [Fault("loop", 5), Fault("skip", 9)])
    script.pages = {index: ["<|det|>", f"text {index} ", *(f"w{index}.{n} " for n in range(6))] for index in range(13)}
    decoder = ScriptOverModel(script.words, small_window_model)
    readings = read(script, settings(4, overlap, boundary, release_finished_pages=early), decoder)
    assert [reading.text.strip() for reading in readings] == [script.text(page).strip() for page in range(13)]
    assert decoder.real.usage().kv_bytes == 0
    assert decoder.numbers == {}
