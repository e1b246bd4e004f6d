"""Fingerprints: stable across processes, changed by everything a result depends on."""

from __future__ import annotations

from ingestion.fingerprint import fingerprint


def test_a_fingerprint_is_the_same_on_every_machine() -> None:
    assert fingerprint("ocr", {"engine": "rapidocr", "dpi": 200}) == "527b6c4f40572271"
    assert fingerprint("ocr", {"dpi": 200, "engine": "rapidocr"}) == fingerprint(
        "ocr", {"engine": "rapidocr", "dpi": 200}
    )


def test_everything_a_result_depends_on_changes_it() -> None:
    base = fingerprint("ocr", {"dpi": 200}, "upstream")
    assert base != fingerprint("ocr", {"dpi": 300}, "upstream")
    assert base != fingerprint("structure", {"dpi": 200}, "upstream")
    assert base != fingerprint("ocr", {"dpi": 200}, "other")
    assert base != fingerprint("ocr", {"dpi": 200})
