"""The guard of one page: what it forbids, what it spares, and when it ends the page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocr2_core.ocr2.guards import DecodingFault, GuardSettings, PageEnding, PageGuard, StructureTokens

SETTINGS = GuardSettings(ngram_size=4, ngram_window_tokens=20, max_page_tokens=1000)
TAG, ROW_END = 90, 91
STRUCTURE = StructureTokens(frozenset({TAG, ROW_END}), frozenset({ROW_END}))


def logits(best: int, second: int = 50) -> np.ndarray:
    scores = np.zeros(100, np.float32)
    scores[best], scores[second] = 2.0, 1.0
    return scores


def guard_after(tokens: list[int], settings: GuardSettings = SETTINGS) -> PageGuard:
    guard = PageGuard(settings, STRUCTURE)
    for token in tokens:
        assert guard.accept(token) is None
    return guard


def test_an_ngram_may_not_return_within_the_window() -> None:
    guard = guard_after([1, 2, 3, 4, 5, 1, 2, 3])
    assert guard.choose(logits(4)) == 50
    assert guard.has_refused
    assert guard.choose(logits(5)) == 5
    assert not guard.has_refused
    # the same text behind 20 others is free again
    assert guard_after([1, 2, 3, 4, *range(10, 30), 1, 2, 3]).choose(logits(4)) == 4


def test_structure_and_rows_are_spared() -> None:
    assert guard_after([1, 2, 3, TAG, 5, 1, 2, 3]).choose(logits(TAG)) == TAG
    assert guard_after([1, ROW_END, 3, 4, 5, 1, ROW_END, 3]).choose(logits(4)) == 4


def test_the_rule_can_be_turned_off() -> None:
    assert guard_after([1, 2, 3, 4, 5, 1, 2, 3], replace(SETTINGS, ngram_size=0)).choose(logits(4)) == 4


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(2, 5), st.integers(6, 30))
def test_it_forbids_what_transformers_forbids(tokens: list[int], size: int, window: int) -> None:
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("transformers.models.unlimited_ocr.generation_unlimited_ocr")
    theirs = module.UnlimitedOcrSlidingWindowNoRepeatNgramLogitsProcessor(size, window)
    scores = theirs(torch.tensor([tokens]), torch.zeros(1, 6))[0]
    forbidden = {token for token in range(6) if scores[token] == -float("inf")}
    settings = GuardSettings(
        ngram_size=size, ngram_window_tokens=window, max_page_tokens=1000, max_refusals=1000, max_table_repeats=1000
    )
    guard = PageGuard(settings, StructureTokens())
    for token in tokens:
        guard.accept(token)
    ours = set()
    for token in range(6):
        scores = np.zeros(6, np.float32)
        scores[token] = 1.0
        if guard.choose(scores) != token:
            ours.add(token)
    # where all are forbidden, there is nothing else to choose
    assert ours == forbidden or forbidden == set(range(6))


def run(pattern: list[int], count: int, settings: GuardSettings) -> tuple[PageEnding | None, PageGuard]:
    guard = PageGuard(settings, STRUCTURE)
    for position in range(count):
        ending = guard.accept(guard.choose(logits(pattern[position % len(pattern)])))
        if ending is not None:
            return ending, guard
    return None, guard


def test_a_model_that_insists_on_repeating_is_in_a_loop() -> None:
    ending, guard = run([1, 2, 3, 4, 5, 6, 7], 1000, GuardSettings())
    assert ending is PageEnding.LOOP
    assert len(guard.tokens) < 35 * 6
    # the first round and what it took to see the second
    assert guard.tokens_before_loop() == ([1, 2, 3, 4, 5, 6, 7] * 6)[: len(guard.tokens_before_loop())]


def test_equal_rows_are_a_loop_only_beyond_their_bound() -> None:
    row = [TAG, 1, TAG, TAG, 2, ROW_END]
    settings = GuardSettings(max_table_repeats=40)
    assert run(row, 39 * 6, settings)[0] is None
    ending, guard = run(row, 100 * 6, settings)
    assert ending is PageEnding.LOOP
    assert len(guard.tokens) == 41 * 6
    assert guard.tokens_before_loop() == row


def test_empty_cells_without_end_are_a_loop() -> None:
    assert run([TAG, 89, TAG], 1000, GuardSettings(max_table_repeats=50, ngram_size=0))[0] is PageEnding.LOOP


def test_few_different_ngrams_are_a_loop() -> None:
    # never periodic, and no n-gram of 35 returns, but always the same few words
    chance = np.random.default_rng(1)
    phrase = [1, 2, 3, 4, 5, 6]
    guard = PageGuard(GuardSettings(), STRUCTURE)
    ending = None
    while ending is None and len(guard.tokens) < 3000:
        for token in [*phrase, *([7] if chance.random() < 0.3 else [])]:
            ending = ending or guard.accept(token)
    assert ending is PageEnding.LOOP
    assert len(guard.tokens) == 512


def test_plain_text_is_no_loop() -> None:
    chance = np.random.default_rng(2)
    guard = PageGuard(GuardSettings(), STRUCTURE)
    assert {guard.accept(int(token)) for token in chance.zipf(1.3, 4000) % 3000} == {None}


def test_the_budget_ends_the_page() -> None:
    settings = GuardSettings(max_page_tokens=5)
    guard = PageGuard(settings, STRUCTURE)
    assert [guard.accept(token) for token in range(5)] == [None, None, None, None, PageEnding.TRUNCATED]
    assert guard.tokens_before_loop() == [0, 1, 2, 3, 4]


def test_numbers_that_cannot_be_used_are_a_fault() -> None:
    with pytest.raises(DecodingFault, match="not finite"):
        PageGuard(SETTINGS, STRUCTURE).choose(np.full(100, np.nan, np.float32))
