"""Runs documents through the batch on a scripted decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ocr2_core.ocr2.batching import ContinuousBatch
from ocr2_core.ocr2.guards import GuardSettings
from ocr2_core.ocr2.infinite_decoding import DecodingSettings, DocumentDecoding
from ocr2_core.ocr2.operations import PageReading
from ocr2_core.ocr2.page_decoder import Boundary
from ocr2_core.ocr2.page_groups import Grouping
from tests.ocr2_core.ocr2.scripted_decoder import Script, ScriptedDecoder

# far more rounds than any of these documents can need: a run that does not end fails instead of hanging
MOST_ROUNDS = 300_000


def settings(size: int = 6, overlap: int = 1, boundary: str = "restart", **more: Any) -> DecodingSettings:
    guards = more.pop("guards", GuardSettings(max_page_tokens=300))
    return DecodingSettings(Grouping(size, overlap), Boundary(boundary), guards, **more)


def document(script: Script, chosen: DecodingSettings, first: int = 0, **more: Any) -> DocumentDecoding:
    """The script's document with all its pages fed."""
    decoding = DocumentDecoding(script.words, chosen, **more)
    for page in script.source_pages(first):
        decoding.feed(page)
    decoding.end()
    return decoding


def run(batch: ContinuousBatch, documents: Sequence[DocumentDecoding]) -> list[list[PageReading]]:
    """Run the batch until all documents are done; their readings."""
    results: list[list[PageReading]] = [[] for _ in documents]
    for one in documents:
        batch.add(one)
    for _ in range(MOST_ROUNDS):
        moved = batch.run_once()
        for readings, one in zip(results, documents, strict=True):
            readings.extend(one.take_results())
        if not moved:
            break
    assert all(batch.is_done(one) for one in documents)
    return results


def read(
    script: Script, chosen: DecodingSettings | None = None, decoder: ScriptedDecoder | None = None, first: int = 0
) -> list[PageReading]:
    """One document, alone on its decoder."""
    decoder = decoder or ScriptedDecoder(script.words)
    (readings,) = run(ContinuousBatch(decoder), [document(script, chosen or settings(), first)])
    assert decoder.usage().kv_bytes == 0
    assert not decoder.sequences
    return readings
