"""Whatever the decoder does: one result a page, in order, and an end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ocr2_core.ledger import PageStatus
from ocr2_core.ocr2.guards import GuardSettings
from tests.ocr2_core.ocr2.decode import read, settings
from tests.ocr2_core.ocr2.scripted_decoder import Fault, Script, ScriptedDecoder, Words

KINDS = ("skip", "double", "split", "loop", "long", "end", "extra", "empty")
GUARDS = GuardSettings(max_page_tokens=120, ngram_size=12)


@st.composite
def documents(draw: st.DrawFn) -> tuple[Script, int, int, str]:
    page_count = draw(st.integers(0, 24))
    size = draw(st.integers(1, 9))
    overlap = draw(st.integers(0, min(3, size - 1)))
    boundary = draw(st.sampled_from(("carry", "restart", "recompute")))
    pages = st.integers(0, max(page_count - 1, 0))
    fault = st.builds(Fault, st.sampled_from(KINDS), pages, st.booleans(), st.sampled_from((1, 2, 1000)))
    faults = draw(st.lists(fault, max_size=5, unique=True))
    script = Script(Words(), page_count, faults, draw(st.integers(0, 3)), goes_on=draw(st.booleans()))
    return script, size, overlap, boundary


@given(documents())
@hypothesis_settings(max_examples=120, deadline=None)
def test_every_page_comes_out_once_in_order(drawn: tuple[Script, int, int, str]) -> None:
    script, size, overlap, boundary = drawn
    decoder = ScriptedDecoder(script.words)
    readings = read(script, settings(size, overlap, boundary, guards=GUARDS), decoder)
    assert [reading.page_index for reading in readings] == list(range(script.page_count))
    for reading in readings:
        assert (reading.status is PageStatus.OK) == (reading.reason is None)
    # a group, one page at a higher resolution, or the pages handed over and one beside them
    carried = decoder.sequence_bytes([49] * (overlap + 1), 3) + decoder.sequence_bytes([49], 3)
    largest = max(decoder.sequence_bytes([49] * size, 3), decoder.sequence_bytes([81], 3), carried * (overlap > 0))
    assert decoder.peak_kv_bytes <= largest


@given(st.integers(1, 20), st.integers(2, 9), st.sampled_from(("carry", "restart", "recompute")), st.data())
@hypothesis_settings(max_examples=60, deadline=None)
def test_one_fault_that_a_page_alone_does_not_have_costs_no_text(
    page_count: int, size: int, boundary: str, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    script = Script(Words(), page_count, [Fault(kind, data.draw(st.integers(0, page_count - 1)))])
    overlap = data.draw(st.integers(0, size - 1))
    readings = read(script, settings(size, overlap, boundary, guards=GUARDS))
    assert [reading.text.strip() for reading in readings] == [script.text(page).strip() for page in range(page_count)]
    assert all(reading.status is not PageStatus.FAILED for reading in readings)


@given(st.integers(0, 200), st.integers(1, 30), st.data())
def test_where_reading_resumes(page_index: int, size: int, data: st.DataObject) -> None:
    grouping = settings(size, data.draw(st.integers(0, size - 1))).grouping
    start = grouping.resume_page_index(page_index)
    group = grouping.group_of(page_index)
    assert start <= page_index < start + size
    assert start == grouping.first_page_of(group)
    # the page is new in its group: in the overlap of no other, unless it is the first group's
    assert group == 0 or page_index >= start + grouping.chunk_overlap
