"""Many documents on one scripted decoder: equal results, bounded memory, no document harmed by another."""

from __future__ import annotations

import pytest

from ocr2_core.errors import EngineError
from ocr2_core.ledger import PageStatus
from ocr2_core.ocr2.batching import ContinuousBatch
from ocr2_core.ocr2.operations import GroupNeverFits, PageReading
from tests.ocr2_core.ocr2.decode import document, read, run, settings
from tests.ocr2_core.ocr2.scripted_decoder import Fault, Script, ScriptedDecoder, Words


def told(readings: list[PageReading]) -> list[tuple[int, str, PageStatus, str | None, int]]:
    return [(r.page_index, r.text, r.status, r.reason, r.token_count) for r in readings]


def sixteen(words: Words) -> list[Script]:
    faults = {2: [Fault("loop", 3)], 5: [Fault("skip", 1)], 7: [Fault("long", 0, alone=True)], 11: [Fault("end", 2)]}
    return [Script(words, 3 + number, faults.get(number, ()), seed=number) for number in range(16)]


@pytest.mark.parametrize("boundary", ["carry", "restart", "recompute"])
def test_sixteen_documents_together_equal_each_alone(boundary: str) -> None:
    words = Words()
    decoder = ScriptedDecoder(words)
    chosen = settings(6, 1, boundary)
    batch = ContinuousBatch(decoder)
    together = run(batch, [document(script, chosen) for script in sixteen(words)])
    alone = [read(script, chosen, ScriptedDecoder(words)) for script in sixteen(words)]
    assert [told(readings) for readings in together] == [told(readings) for readings in alone]
    assert max(decoder.batch_sizes) == 16
    assert decoder.usage().kv_bytes == 0
    report = batch.report
    assert report.peak_running == 16
    assert report.peak_kv_bytes == decoder.peak_kv_bytes
    assert report.step_count == len(decoder.batch_sizes)
    assert report.token_count == sum(decoder.batch_sizes)


def test_no_more_documents_than_allowed_decode_at_once() -> None:
    words = Words()
    decoder = ScriptedDecoder(words)
    scripts = sixteen(words)
    results = run(ContinuousBatch(decoder, max_concurrency=3), [document(script, settings()) for script in scripts])
    assert [len(readings) for readings in results] == [script.page_count for script in scripts]
    assert max(decoder.batch_sizes) == 3


@pytest.mark.parametrize("boundary", ["carry", "restart", "recompute"])
def test_the_watermark_holds_new_work_back(boundary: str) -> None:
    words = Words()
    decoder = ScriptedDecoder(words, pool_blocks=100)
    watermark_bytes = 0.8 * decoder.usage().pool_bytes
    peaks = []
    decoder.on_step = lambda _: peaks.append(decoder.usage().kv_bytes)
    batch = ContinuousBatch(decoder, kv_cache_watermark=0.8)
    results = run(batch, [document(script, settings(6, 1, boundary)) for script in sixteen(words)])
    assert [len(readings) for readings in results] == list(range(3, 19))
    assert max(peaks) <= watermark_bytes
    assert decoder.peak_kv_bytes <= watermark_bytes
    assert max(decoder.batch_sizes) >= 2
    assert batch.report.waits > 0


def test_a_group_larger_than_the_watermark_runs_by_itself() -> None:
    words = Words()
    decoder = ScriptedDecoder(words, pool_blocks=18)
    scripts = [Script(words, 6, seed=number) for number in range(3)]
    results = run(ContinuousBatch(decoder, kv_cache_watermark=0.5), [document(one, settings(6)) for one in scripts])
    assert [[reading.text.strip() for reading in readings] for readings in results] == [
        [script.text(page).strip() for page in range(6)] for script in scripts
    ]
    assert set(decoder.batch_sizes) == {1}


def test_a_document_that_never_fits_does_not_stop_the_others() -> None:
    words = Words()
    decoder = ScriptedDecoder(words, pool_blocks=30)
    batch = ContinuousBatch(decoder)
    small = [Script(words, 4, seed=number) for number in range(3)]
    large = document(Script(words, 20), settings(20))
    documents = [document(small[0], settings(6)), large, *(document(one, settings(6)) for one in small[1:])]
    for one in documents:
        batch.add(one)
    while batch.run_once():
        pass
    with pytest.raises(GroupNeverFits, match=r"20 pages .* page_chunk_size"):
        batch.is_done(large)
    assert large.take_results() == []
    for one in (documents[0], *documents[2:]):
        assert batch.is_done(one)
        assert len(one.take_results()) == 4


def test_an_error_in_one_document_ends_that_document_only() -> None:
    words = Words()

    class Decoder(ScriptedDecoder):
        def open_sequence(self, pages, prompt_token_ids):  # type: ignore[no-untyped-def]
            if pages[0].features[0].seed == 1:
                raise RuntimeError("bad features")
            return super().open_sequence(pages, prompt_token_ids)

    scripts = [Script(words, 8, seed=number) for number in range(3)]
    results = run(ContinuousBatch(Decoder(words)), [document(one, settings(6)) for one in scripts])
    assert [{reading.status for reading in readings} for readings in results] == [
        {PageStatus.OK},
        {PageStatus.FAILED},
        {PageStatus.OK},
    ]
    assert "RuntimeError: bad features" in (results[1][0].reason or "")


def test_a_page_too_large_at_a_higher_resolution_is_read_again_as_it_was() -> None:
    words = Words()
    script = Script(words, 4, [Fault("loop", 2, times=1)], alone_token_count=16 * 40)
    readings = read(script, settings(4), ScriptedDecoder(words, pool_blocks=14))
    assert [reading.status.value for reading in readings] == ["ok", "ok", "repaired", "ok"]
    assert readings[2].text.strip() == script.text(2).strip()


def test_a_document_can_be_taken_out_at_any_time() -> None:
    words = Words()
    decoder = ScriptedDecoder(words)
    batch = ContinuousBatch(decoder)
    leaving, staying = document(Script(words, 9, seed=1), settings()), document(Script(words, 9, seed=2), settings())
    batch.add(leaving)
    batch.add(staying)
    for _ in range(40):
        batch.run_once()
    batch.remove(leaving)
    while batch.run_once():
        pass
    assert batch.is_done(staying)
    assert len(staying.take_results()) == 9
    assert decoder.usage().kv_bytes == 0


@pytest.mark.parametrize(
    ("options", "name"),
    [({"max_concurrency": 0}, "max_concurrency"), ({"kv_cache_watermark": 0.0}, "kv_cache_watermark")],
)
def test_wrong_options_are_refused(options: dict[str, float], name: str) -> None:
    with pytest.raises(EngineError, match=name):
        ContinuousBatch(ScriptedDecoder(Words()), **options)  # type: ignore[arg-type]
