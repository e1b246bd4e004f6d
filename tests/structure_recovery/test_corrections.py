"""Corrections by hand: the last word, tied to a place, found again after another reading."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from docling_core.types.doc import ContentLayer, DocItemLabel, SectionHeaderItem, TextItem
from pydantic import ValidationError

from ocr2_core.blocks import Block, PageBlocks
from ocr2_core.geometry import BBoxNorm
from structure_recovery.corrections import Correction, text_at
from structure_recovery.recover import RecoveredDocument, recover

Maker = Callable[..., Block]


@pytest.fixture
def pages(block: Maker, page: Callable[..., PageBlocks], prose: Callable[[float], Block]) -> list[PageBlocks]:
    return [
        page(0, block("1 Setup", 60, size_pt=16, bold=True), prose(100), block("Before you begin", 300), prose(330)),
        page(
            1, prose(60), block("2 Use", 140, size_pt=16, bold=True), prose(180), block("Fig 1 pump", 300), prose(330)
        ),
    ]


def _box(page: PageBlocks, text: str, shift: float = 0.0) -> BBoxNorm:
    left, top, right, bottom = next(each.bbox_norm for each in page.blocks if each.text == text)
    return left, top + shift, right, bottom + shift


def _headings(recovered: RecoveredDocument) -> list[tuple[int, str]]:
    return [(each.level, each.text) for each in recovered.document.texts if isinstance(each, SectionHeaderItem)]


def _body(recovered: RecoveredDocument) -> list[str]:
    return [each.text for each, _ in recovered.document.iterate_items() if isinstance(each, TextItem)]


def test_a_level_makes_a_heading_and_a_label_unmakes_one(pages: list[PageBlocks]) -> None:
    assert _headings(recover(pages, name="m")) == [(1, "1 Setup"), (1, "2 Use")]
    recovered = recover(
        pages,
        name="m",
        corrections=[
            Correction(page_number=1, bbox_norm=_box(pages[0], "Before you begin"), level=2),
            Correction(page_number=2, bbox_norm=_box(pages[1], "2 Use"), label="text"),
        ],
    )
    assert _headings(recovered) == [(1, "1 Setup"), (2, "Before you begin")]
    assert "2 Use" in _body(recovered)
    assert recovered.report.applied_correction_count == 2
    assert [each.name for each in recovered.report.headings[1].evidence] == ["corrected by hand"]
    assert recovered.report.headings[1].level == 2


def test_a_text_is_replaced_and_a_header_is_set_aside(pages: list[PageBlocks]) -> None:
    recovered = recover(
        pages,
        name="m",
        corrections=[
            Correction(page_number=1, bbox_norm=_box(pages[0], "1 Setup"), text="1 Set-up of the pump"),
            Correction(page_number=2, bbox_norm=_box(pages[1], "Fig 1 pump"), label="page_header"),
        ],
    )
    assert _headings(recovered)[0] == (1, "1 Set-up of the pump")
    aside = [each.text for each in recovered.document.texts if each.content_layer is ContentLayer.FURNITURE]
    assert aside == ["Fig 1 pump"]
    labels = {each.text: each.label for each in recovered.document.texts}
    assert labels["Fig 1 pump"] is DocItemLabel.PAGE_HEADER


def test_an_order_moves_a_block_on_its_page(pages: list[PageBlocks]) -> None:
    correction = Correction(page_number=1, bbox_norm=_box(pages[0], "Before you begin"), order=1)
    assert _body(recover(pages, name="m", corrections=[correction]))[:2] == ["Before you begin", "1 Setup"]


def test_a_block_is_found_again_where_it_moved_a_little(pages: list[PageBlocks]) -> None:
    height = _box(pages[0], "Before you begin")[3] - _box(pages[0], "Before you begin")[1]
    near = _box(pages[0], "Before you begin", shift=0.2 * height)
    assert text_at(pages[0], Correction(page_number=1, bbox_norm=near, level=2)) == "Before you begin"
    # moved by more than half of its height, but it still says so
    far = _box(pages[0], "Before you begin", shift=0.6 * height)
    known = Correction(page_number=1, bbox_norm=far, level=2, seen_text="Before you begin:")
    unknown = known.model_copy(update={"seen_text": ""})
    assert text_at(pages[0], known) == "Before you begin"
    assert text_at(pages[0], unknown) is None
    report = recover(pages, name="m", corrections=[unknown]).report
    assert report.applied_correction_count == 0
    assert len(report.unmatched_corrections) == 1
    assert report.unmatched_corrections[0].startswith("page 1, box ")
    assert report.unmatched_corrections[0].endswith(": level 2")


def test_a_correction_must_say_one_sensible_thing() -> None:
    box = (10.0, 10.0, 20.0, 20.0)
    for wrong, message in (
        ({}, "needs a level, a label, a text or an order"),
        ({"level": 2, "label": "text"}, "cannot go with the label text"),
        ({"label": "title"}, "cannot be set by hand"),
        ({"level": 10}, "less than or equal to 9"),
        ({"level": 1, "bbox_norm": (20, 10, 10, 20)}, "x0 < x1"),
    ):
        with pytest.raises(ValidationError, match=message):
            Correction.model_validate({"page_number": 1, "bbox_norm": box, **wrong})


def test_two_corrections_that_find_one_block_are_both_taken(pages: list[PageBlocks]) -> None:
    left, top, right, bottom = _box(pages[0], "Before you begin")
    first_half = (left, top, left + 0.55 * (right - left), bottom)
    second_half = (left + 0.45 * (right - left), top, right, bottom)
    recovered = recover(
        pages,
        name="m",
        corrections=[
            Correction(page_number=1, bbox_norm=first_half, level=2),
            Correction(page_number=1, bbox_norm=second_half, text="Before the start"),
        ],
    )
    assert _headings(recovered)[1] == (2, "Before the start")
    assert recovered.report.unmatched_corrections == []
