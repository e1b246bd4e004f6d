"""Page groups, hand-overs and guards on a scripted decoder: every page once, in order, with the right text and
ledger."""

from __future__ import annotations

import pytest

from ocr2_core.errors import EngineError
from ocr2_core.ledger import PageStatus
from ocr2_core.ocr2.batching import ContinuousBatch
from ocr2_core.ocr2.guards import GuardSettings
from ocr2_core.ocr2.infinite_decoding import DecodingSettings, DocumentDecoding
from ocr2_core.ocr2.operations import GroupNeverFits, PageReading
from ocr2_core.ocr2.page_decoder import Boundary
from ocr2_core.ocr2.page_groups import Grouping
from tests.ocr2_core.ocr2.decode import document, read, run, settings
from tests.ocr2_core.ocr2.scripted_decoder import (
    BLOCK_TOKENS,
    TOKEN_BYTES,
    WINDOW,
    Fault,
    Script,
    ScriptedDecoder,
    Words,
    page_strings,
)

BOUNDARIES = ("carry", "restart", "recompute")


def script(page_count: int, *faults: Fault, seed: int = 0) -> Script:
    return Script(Words(), page_count, faults, seed)


def trouble(readings: list[PageReading]) -> dict[int, tuple[str, str]]:
    """Pages that are not ok: their status and the first word of the reason."""
    return {
        reading.page_index: (reading.status.value, (reading.reason or "").partition(":")[0])
        for reading in readings
        if reading.status is not PageStatus.OK or reading.reason
    }


def assert_text(readings: list[PageReading], of: Script, but: tuple[int, ...] = ()) -> None:
    """Every page once, in order, with its own text (`but` these)."""
    assert [reading.page_index for reading in readings] == list(range(of.page_count))
    wrong = [r.page_index for r in readings if r.text.strip() != of.text(r.page_index).strip()]
    assert wrong == list(but)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_300_pages_come_out_once_in_order(boundary: str) -> None:
    document = script(300)
    decoder = ScriptedDecoder(document.words)
    readings = read(document, settings(105, 1, boundary), decoder)
    assert_text(readings, document)
    assert trouble(readings) == {}
    proofs = [] if boundary == "restart" else [(104,), (208,)]
    assert decoder.opened == [tuple(range(105)), *proofs]
    kept = (104,) if boundary == "carry" else ()
    first_new = 105 if boundary == "carry" else 104
    assert decoder.hand_overs == [
        (Boundary(boundary), kept, tuple(range(first_new, 209))),
        (Boundary(boundary), (208,) if kept else (), tuple(range(first_new + 104, 300))),
    ]


@pytest.mark.parametrize("boundary", ["carry", "recompute"])
@pytest.mark.parametrize("early", [False, True])
def test_a_decoder_that_goes_on_at_a_group_end_is_handed_over_there(boundary: str, early: bool) -> None:
    document = script(16)
    document.goes_on = True
    decoder = ScriptedDecoder(document.words)
    readings = read(document, settings(6, 1, boundary, release_finished_pages=early), decoder)
    assert_text(readings, document)
    assert trouble(readings) == {}
    # the last page of each group is read beside it: nothing else shows that the count of markers is right
    assert decoder.opened == [(0, 1, 2, 3, 4, 5), (5,), (10,)]
    assert decoder.peak_kv_bytes == (6 * 3 * BLOCK_TOKENS + 1 + 3 + 6 + WINDOW) * TOKEN_BYTES
    assert document.read_alone == []


@pytest.mark.parametrize("kind", ["skip", "double", "split"])
@pytest.mark.parametrize("page_index", [0, 1, 4, 5, 8, 10])
def test_no_fault_hides_where_a_decoder_goes_on(kind: str, page_index: int) -> None:
    document = script(16, Fault(kind, page_index))
    document.goes_on = True
    readings = read(document, settings(6, 1, "carry"))
    assert_text(readings, document)
    assert all(status == "repaired" for status, _ in trouble(readings).values())


def test_a_carried_page_is_not_read_twice_and_a_restarted_one_is() -> None:
    steps = {}
    for boundary in BOUNDARIES:
        decoder = ScriptedDecoder(Words())
        read(Script(decoder.words, 11), settings(6, 1, boundary, verifies_carried=False), decoder)
        steps[boundary] = len(decoder.batch_sizes)
    a_page = len(page_strings(0)) + 1
    assert steps["carry"] == steps["recompute"] == 11 * a_page
    assert steps["restart"] == 12 * a_page


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("page_count", "size"), [(1, 6), (5, 6), (6, 6), (6, 105)])
def test_one_group_over_a_short_document_equals_no_grouping(boundary: str, page_count: int, size: int) -> None:
    document = script(page_count)
    decoder = ScriptedDecoder(document.words)
    readings = read(document, settings(size, 1, boundary), decoder)
    assert decoder.opened == [tuple(range(page_count))]
    assert decoder.hand_overs == []
    alone = read(script(page_count), settings(1000, 1))
    assert [(r.page_index, r.text, r.status) for r in readings] == [(r.page_index, r.text, r.status) for r in alone]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_page_marker_may_be_several_tokens(boundary: str) -> None:
    words = Words(("<", "PAGE", ">"))
    document = Script(words, 16, [Fault("double", 3), Fault("loop", 8)])
    readings = read(document, settings(6, 1, boundary))
    assert_text(readings, document)
    assert trouble(readings) == {3: ("repaired", "duplicate page"), 8: ("repaired", "loop")}
    if boundary != "restart":
        going_on = Script(words, 16, goes_on=True)
        readings = read(going_on, settings(6, 1, boundary))
        assert_text(readings, going_on)
        assert trouble(readings) == {}


def test_a_single_page_is_asked_for_with_its_own_prompt() -> None:
    document = script(1)
    prompts = []

    class Decoder(ScriptedDecoder):
        def open_sequence(self, pages, prompt_token_ids):  # type: ignore[no-untyped-def]
            prompts.append(prompt_token_ids)
            return super().open_sequence(pages, prompt_token_ids)

    read(document, settings(6), Decoder(document.words))
    read(script(2), settings(6), Decoder(document.words))
    assert prompts == [Words.single_prompt_token_ids, Words.group_prompt_token_ids]


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("page_count", [7, 40, 100])
def test_memory_is_bounded_by_the_group_and_not_by_the_document(boundary: str, page_count: int) -> None:
    document = script(page_count)
    decoder = ScriptedDecoder(document.words)
    read(document, settings(6, 2, boundary), decoder)
    blocks = 6 * 3 * BLOCK_TOKENS
    assert decoder.peak_kv_bytes == (blocks + 1 + 3 + 6 + WINDOW) * TOKEN_BYTES


def test_finished_pages_leave_early_where_that_is_allowed() -> None:
    document = script(14)
    decoder = ScriptedDecoder(document.words)
    readings = read(document, settings(6, 1, "carry", release_finished_pages=True), decoder)
    assert_text(readings, document)
    # all but the page being read and the one before; at a group's end all but the overlap, for the proof beside it
    assert decoder.released == [0, 1, 2, 3, 4, 6, 7, 8, 5, 9, 11]


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("page_index", [0, 1, 3, 5, 6, 8])
def test_a_missing_page_is_found_and_read_alone(boundary: str, page_index: int) -> None:
    document = script(9, Fault("skip", page_index))
    readings = read(document, settings(6, 1, boundary))
    assert_text(readings, document)
    word = "early end" if page_index in (5, 8) else "missing page"
    if boundary == "restart" and page_index == 5:
        word = "early end"
    assert trouble(readings) == {page_index: ("repaired", word)}
    # bisection: log2(6) pages and the missing one, no more
    assert len(document.read_alone) <= 4


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("page_index", [0, 2, 5, 8])
def test_a_page_written_twice_is_kept_once(boundary: str, page_index: int) -> None:
    document = script(9, Fault("double", page_index, times=1))
    readings = read(document, settings(6, 1, boundary))
    assert_text(readings, document)
    # where the group is carried on, the decoder is stopped at the marker behind the group's last page
    is_unseen = page_index == 5 and boundary != "restart"
    assert trouble(readings) == ({} if is_unseen else {page_index: ("repaired", "duplicate page")})


@pytest.mark.parametrize("page_index", [2, 5])
def test_a_page_that_does_not_exist_is_dropped(page_index: int) -> None:
    document = script(6, Fault("extra", page_index))
    readings = read(document)
    assert_text(readings, document)
    assert trouble(readings) == {page_index: ("repaired", "extra page")}


def test_a_page_cut_in_two_is_read_alone() -> None:
    document = script(6, Fault("split", 3))
    readings = read(document)
    assert_text(readings, document)
    assert list(trouble(readings)) == [3]
    assert readings[3].status is PageStatus.REPAIRED


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_pages_behind_an_early_end_are_read(boundary: str) -> None:
    document = script(12, Fault("end", 3, times=1))
    decoder = ScriptedDecoder(document.words)
    readings = read(document, settings(8, 1, boundary), decoder)
    assert_text(readings, document)
    assert trouble(readings) == dict.fromkeys((3, 4, 5, 6, 7), ("repaired", "early end"))
    # one page read alone proves that nothing was skipped before the end
    assert document.read_alone == [2]
    assert decoder.opened[:3] == [tuple(range(8)), (2,), (3, 4, 5, 6, 7)]


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("page_index", [0, 3, 5, 6, 11])
def test_a_loop_is_read_again_alone_and_the_other_pages_are_untouched(boundary: str, page_index: int) -> None:
    document = script(12, Fault("loop", page_index))
    readings = read(document, settings(6, 1, boundary))
    assert_text(readings, document)
    assert trouble(readings) == {page_index: ("repaired", "loop")}
    assert document.read_alone == [page_index]


def test_a_page_that_always_loops_fails_with_the_text_before_its_loop() -> None:
    document = script(5, Fault("loop", 2, alone=True))
    readings = read(document)
    assert_text(readings, document, but=(2,))
    assert trouble(readings) == {2: ("failed", "loop")}
    words = document.strings(2)[:10]
    assert readings[2].text.startswith("".join(words))
    assert readings[2].text.count("again0") <= 6


def test_a_group_with_endless_trouble_is_read_page_by_page() -> None:
    document = script(12, *(Fault("loop", page) for page in (1, 2, 3, 4, 5)))
    decoder = ScriptedDecoder(document.words)
    readings = read(document, settings(12), decoder)
    assert_text(readings, document)
    assert trouble(readings) == {
        **dict.fromkeys((1, 2, 3, 4), ("repaired", "loop")),
        **dict.fromkeys(range(5, 12), ("repaired", "unsettled group")),
    }


def test_a_page_over_its_token_budget_is_never_ok() -> None:
    document = script(5, Fault("long", 2, alone=True))
    readings = read(document)
    assert_text(readings, document, but=(2,))
    assert trouble(readings) == {2: ("failed", "truncated")}
    assert readings[2].token_count == 300
    assert readings[2].text.startswith(document.text(2))


def test_a_page_over_its_budget_only_in_a_group_is_repaired() -> None:
    document = script(5, Fault("long", 2))
    readings = read(document)
    assert_text(readings, document)
    assert trouble(readings) == {2: ("repaired", "truncated")}


def test_a_skip_before_a_loop_does_not_shift_the_pages() -> None:
    document = script(9, Fault("skip", 1), Fault("loop", 5))
    readings = read(document, settings(9))
    assert_text(readings, document)
    found = trouble(readings)
    assert found[1] == ("repaired", "missing page")
    assert set(found) <= {1, 4, 5}
    assert all(status == "repaired" for status, _ in found.values())


def table(rows: int) -> list[str]:
    row = ["<tr>", "<td>", "0 ", "</td>", "<td>", "none ", "</td>", "</tr>"]
    return ["<|det|>", "table", " [10, 20, 900, 200]", "<|/det|>", "<table>", *row * rows, "</table>"]


def test_repeated_table_rows_survive() -> None:
    document = script(4)
    document.pages[1] = table(80)
    readings = read(document, settings(6, guards=GuardSettings(max_page_tokens=2000)))
    assert_text(readings, document)
    assert trouble(readings) == {}


def test_a_table_that_never_ends_is_a_loop() -> None:
    document = script(4)
    document.pages[1] = table(5000)
    readings = read(document, settings(6, guards=GuardSettings(max_page_tokens=100_000)))
    assert_text(readings, document, but=(1,))
    assert trouble(readings) == {1: ("failed", "loop")}


def test_a_notice_on_every_page_is_no_repetition() -> None:
    document = script(8)
    notice = [f"notice{number} " for number in range(60)]
    for index in range(8):
        document.pages[index] = [*page_strings(index), *notice]
    readings = read(document, settings(8))
    assert_text(readings, document)
    assert trouble(readings) == {}


def test_equal_neighbours_are_told_from_a_page_written_twice() -> None:
    document = script(8)
    document.pages[3] = document.pages[4] = page_strings(3)
    readings = read(document, settings(8))
    assert_text(readings, document)
    assert trouble(readings) == {}
    assert document.read_alone == [4, 3]


def test_a_page_with_nothing_written_is_read_alone() -> None:
    document = script(6, Fault("empty", 2))
    readings = read(document)
    assert_text(readings, document)
    assert trouble(readings) == {2: ("repaired", "empty page")}


def test_a_failed_step_costs_one_more_pass_and_no_page() -> None:
    document = script(9)
    steps = []

    def fail_once(_: dict[int, int]) -> None:
        steps.append(1)
        if len(steps) == 70:
            raise RuntimeError("device error")

    readings = read(document, settings(9), ScriptedDecoder(document.words, on_step=fail_once))
    assert_text(readings, document)
    assert trouble(readings) == {2: ("repaired", "decoder error")}


def test_a_decoder_that_always_fails_fails_every_page() -> None:
    def fail(_: dict[int, int]) -> None:
        raise RuntimeError("device error")

    document = script(9)
    readings = read(document, settings(4), ScriptedDecoder(document.words, on_step=fail))
    assert [reading.page_index for reading in readings] == list(range(9))
    assert {reading.status for reading in readings} == {PageStatus.FAILED}
    assert "RuntimeError: device error" in (readings[0].reason or "")


def test_a_document_past_its_time_keeps_what_was_read() -> None:
    document = script(12)
    now = [0.0]

    def tick(_: dict[int, int]) -> None:
        now[0] += 1.0

    decoder = ScriptedDecoder(document.words, on_step=tick)
    a_page = len(page_strings(0)) + 1
    chosen = settings(6, timeout_seconds=2.5 * a_page)
    decoding = document_on(document, chosen, now)
    (readings,) = run(ContinuousBatch(decoder, clock=lambda: now[0]), [decoding])
    assert [reading.status.value for reading in readings] == ["ok"] * 2 + ["failed"] * 10
    assert {(reading.reason or "").partition(":")[0] for reading in readings[2:]} == {"timeout"}
    assert document.text(2).startswith(readings[2].text)
    assert readings[2].text


def document_on(of: Script, chosen: DecodingSettings, now: list[float]) -> DocumentDecoding:
    return document(of, chosen, clock=lambda: now[0])


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("killed_after", [0, 5, 6, 10, 11, 16, 29])
def test_a_run_killed_between_groups_goes_on_with_equal_output(boundary: str, killed_after: int) -> None:
    chosen = settings(6, 1, boundary)
    whole = read(script(30), chosen)
    first_missing = killed_after + 1
    if first_missing == 30:
        return
    resumed = script(30)
    decoder = ScriptedDecoder(resumed.words)
    start = chosen.grouping.resume_page_index(first_missing)
    again = read(resumed, chosen, decoder, first=start)
    kept = [reading for reading in again if reading.page_index >= first_missing]
    expected = [reading for reading in whole if reading.page_index >= first_missing]
    assert [(r.page_index, r.text, r.status) for r in kept] == [(r.page_index, r.text, r.status) for r in expected]
    # at most a group is read again
    assert first_missing - start <= 6


def test_a_resumed_group_holds_the_same_pages() -> None:
    chosen = settings(6, 1, "restart")
    whole, resumed = ScriptedDecoder(Words()), ScriptedDecoder(Words())
    read(Script(whole.words, 30), chosen, whole)
    start = chosen.grouping.resume_page_index(13)
    assert start == 10
    read(Script(resumed.words, 30), chosen, resumed, first=start)
    # the overlap page comes first, by itself and with the prompt of a single page, so the next group opens anew
    assert resumed.opened == [(10,), (10, 11, 12, 13, 14, 15)]
    assert resumed.hand_overs == [one for one in whole.hand_overs if one[2][0] > 10]


@pytest.mark.parametrize("boundary", ["carry", "recompute"])
def test_groups_thinned_out_keep_what_the_next_one_shares(boundary: str) -> None:
    document = script(40)
    decoder = ScriptedDecoder(document.words)
    indexes = [0, 1, 4, 5, 6, 7, 11, 12, 13, 14, 20, 21, 22, 30, 37, 38, 39]
    decoding = document_fed(document, indexes, settings(6, 3, boundary, release_finished_pages=True))
    (readings,) = run(ContinuousBatch(decoder), [decoding])
    assert [reading.page_index for reading in readings] == indexes
    assert [reading.text.strip() for reading in readings] == [document.text(index).strip() for index in indexes]
    assert trouble(readings) == {}


def test_pages_that_never_reach_the_decoder_move_no_group() -> None:
    document = script(30)
    decoder = ScriptedDecoder(document.words)
    decoding = document_fed(document, [0, 1, 4, 5, 6, 13, 14, 15, 16, 29], settings(6, 1))
    (readings,) = run(ContinuousBatch(decoder), [decoding])
    assert [reading.page_index for reading in readings] == [0, 1, 4, 5, 6, 13, 14, 15, 16, 29]
    assert decoder.opened == [(0, 1, 4, 5), (29,)]
    assert [pages for _, _, pages in decoder.hand_overs] == [(5, 6), (13, 14, 15), (15, 16)]


def document_fed(of: Script, indexes: list[int], chosen: DecodingSettings) -> DocumentDecoding:
    decoding = DocumentDecoding(of.words, chosen)
    for index in indexes:
        decoding.feed(of.source_page(index))
    decoding.end()
    return decoding


def test_a_group_that_never_fits_says_what_to_set() -> None:
    document = script(6)
    with pytest.raises(GroupNeverFits, match="page_chunk_size"):
        read(document, settings(6), ScriptedDecoder(document.words, pool_blocks=10))


def test_pages_come_out_while_the_document_is_still_fed() -> None:
    of = script(13)
    decoding = DocumentDecoding(of.words, settings(6, 1))
    batch = ContinuousBatch(ScriptedDecoder(of.words))
    batch.add(decoding)
    finished = []
    for page in of.source_pages():
        decoding.feed(page)
        while batch.run_once():
            pass
        finished.append(len(decoding.take_results()))
    # a group is read when a page behind it has come
    assert finished == [0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 5, 0]
    decoding.end()
    while batch.run_once():
        pass
    assert [reading.page_index for reading in decoding.take_results()] == [11, 12]


@pytest.mark.parametrize(
    ("size", "overlap", "message"),
    [(0, 0, "page_chunk_size"), (4, 4, "chunk_overlap"), (4, -1, "chunk_overlap")],
)
def test_wrong_groupings_are_refused(size: int, overlap: int, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        Grouping(size, overlap)


def test_presets() -> None:
    assert Grouping.of_preset("paper") == Grouping(105, 1)
    assert Grouping.of_preset("v1-safe") == Grouping(12, 1)
    assert Grouping.of_preset("paper", page_chunk_size=30, chunk_overlap=2) == Grouping(30, 2)
    assert Grouping.of_preset("v1-safe", page_chunk_size=1) == Grouping(1, 0)
    with pytest.raises(EngineError, match="v1-safe"):
        Grouping.of_preset("v2")
