"""Corrections of published documents: kept beside the manifests, taken by the next run without reading pages again."""

from __future__ import annotations

import pytest

from ingestion.corrections import SourceCorrections
from structure_recovery.corrections import Correction

BOX = (100.0, 100.0, 500.0, 120.0)
NEAR = (101.0, 102.0, 500.0, 121.0)


def corrections_of(*items: Correction) -> SourceCorrections:
    kept = SourceCorrections(bucket="b", key="k.pdf")
    for item in items:
        kept = kept.having(item)
    return kept


def test_a_later_word_on_the_same_block_keeps_what_it_leaves_open() -> None:
    kept = corrections_of(
        Correction(page_number=1, bbox_norm=BOX, level=2, seen_text="Fan"),
        Correction(page_number=2, bbox_norm=BOX, order=1),
        Correction(page_number=1, bbox_norm=NEAR, text="The fan"),
    )
    assert [(each.page_number, each.level, each.text, each.order) for each in kept.corrections] == [
        (2, None, None, 1),
        (1, 2, "The fan", None),
    ]
    assert kept.corrections[1].seen_text == "Fan"
    kept = kept.having(Correction(page_number=1, bbox_norm=BOX, label="text"))
    assert [(each.level, each.label, each.text) for each in kept.corrections if each.page_number == 1] == [
        (None, "text", "The fan")
    ]


def test_what_is_taken_back_is_gone_and_the_digest_tells() -> None:
    empty = corrections_of()
    one = corrections_of(Correction(page_number=1, bbox_norm=BOX, level=2))
    assert empty.digest == ""
    assert len(one.digest) == 64
    assert one.without(1) == empty
    with pytest.raises(IndexError, match="no correction 2: 1 in all"):
        one.without(2)
