"""Pieces find their pages with few readings, whatever happened to them."""

from __future__ import annotations

import random
from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from ocr2_core.ocr2.alignment import Alignment, align, are_duplicates, shingles, similarity

PAGES = [
    " ".join(f"{random.Random(f'{page}/{word}').randrange(10**6):06d}" for word in range(60)) for page in range(128)
]


def aligned(
    page_count: int, pieces: list[str], known: dict[int, str | None] | None = None
) -> tuple[Alignment, list[int]]:
    """The alignment, and the pages that had to be read for it."""
    readings: list[int] = []
    search = align(page_count, pieces, known or {})
    try:
        position = next(search)
        while True:
            readings.append(position)
            position = search.send(PAGES[position])
    except StopIteration as end:
        return end.value, readings


def test_similarity_looks_at_text_only() -> None:
    first = shingles("<|det|>text [1, 2, 3, 4]<|/det|>Open the valve slowly")
    assert similarity(first, shingles("<PAGE>\n<|det|>title [9, 9, 9, 9]<|/det|>Open  the\nvalve slowly")) == 1.0
    assert similarity(first, shingles("Close the drain at once")) < 0.3
    assert similarity(shingles(""), shingles("<|det|>image [1, 2, 3, 4]<|/det|>")) == 1.0
    assert are_duplicates("abc", "abc")
    assert not are_duplicates("abc", "abd")


def test_equal_counts_need_no_reading() -> None:
    found, readings = aligned(100, PAGES[:100])
    assert found.piece_of == {page: page for page in range(100)}
    assert readings == []


@given(st.integers(2, 100), st.data())
def test_a_skipped_page_costs_a_bisection(count: int, data: st.DataObject) -> None:
    skipped = data.draw(st.integers(0, count - 1))
    pieces = [PAGES[page] for page in range(count) if page != skipped]
    found, readings = aligned(count, pieces)
    assert found.piece_of == {page: page - (page > skipped) for page in range(count) if page != skipped}
    assert len(readings) <= ceil(log2(count)) + 2


@given(st.integers(2, 60), st.data())
def test_any_mixture_of_faults_puts_no_piece_on_a_wrong_page(count: int, data: st.DataObject) -> None:
    written = []
    for page in range(count):
        times = data.draw(st.sampled_from((1, 1, 1, 1, 0, 2)))
        written.extend([page] * times)
    found, readings = aligned(count, [PAGES[page] for page in written])
    for page, piece in found.piece_of.items():
        assert written[piece] == page
    assert len(readings) == len(set(readings))


def test_an_early_end_costs_one_reading() -> None:
    found, readings = aligned(40, PAGES[:25])
    assert found.piece_of == {page: page for page in range(25)}
    assert readings == [24]


def test_a_known_page_replaces_a_reading() -> None:
    found, readings = aligned(8, PAGES[1:8], {0: PAGES[0]})
    assert found.piece_of == {page: page - 1 for page in range(1, 8)}
    assert found.unmatched == {0}
    assert readings == []
    found, readings = aligned(8, [PAGES[0], *PAGES[:8]], {0: PAGES[0]})
    assert found.piece_of == {0: 1} | {page: page + 1 for page in range(1, 8)}
    assert (found.dropped, readings) == ([0], [])


def test_pages_that_cannot_be_read_alone_are_paired_in_order() -> None:
    search = align(3, PAGES[:2], {})
    try:
        next(search)
        while True:
            search.send(None)
    except StopIteration as end:
        found: Alignment = end.value
    assert found.piece_of == {0: 0, 1: 1}
    assert found.unmatched == {2}
