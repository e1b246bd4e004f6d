"""What may be published, with literal ledgers."""

from __future__ import annotations

import pytest

from ingestion import publish_gate
from ingestion.errors import DocumentRefused
from ocr2_core.ledger import LedgerCounts, PageResult, PageStatus
from tests.ingestion.pages import page_result

OK, BLANK, REPAIRED, FAILED = PageStatus.OK, PageStatus.BLANK, PageStatus.REPAIRED, PageStatus.FAILED


def reading(*statuses: PageStatus) -> list[PageResult]:
    return [page_result(index, status) for index, status in enumerate(statuses)]


def check(results: list[PageResult], page_count: int, ratio: float = 0.02) -> LedgerCounts:
    return publish_gate.check("s3://manuals/pump.pdf", results, page_count, ratio)


def test_counts_of_a_sound_reading() -> None:
    counts = check(reading(OK, BLANK, REPAIRED, OK), 4)
    assert counts == LedgerCounts(page_count=4, ok=2, blank=1, repaired=1, failed=0)


@pytest.mark.parametrize(
    ("results", "page_count", "text"),
    [
        (reading(OK, OK), 3, "missing 3"),
        ([page_result(0), page_result(0)], 1, "doubled 1"),
        ([page_result(0), page_result(5)], 1, "beyond the end 6"),
        ([page_result(1)], 30, "missing 1, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 19 more"),
    ],
)
def test_a_ledger_that_does_not_add_up_stays_out(results: list[PageResult], page_count: int, text: str) -> None:
    with pytest.raises(DocumentRefused, match=text) as caught:
        check(results, page_count)
    assert caught.value.code == "pages_unaccounted"


def test_one_failed_page_does_not_quarantine_its_document() -> None:
    assert check(reading(OK, FAILED), 2).failed == 1


def test_more_failed_pages_than_tolerated_do() -> None:
    with pytest.raises(DocumentRefused) as caught:
        check(reading(OK, FAILED, FAILED), 3)
    assert caught.value.code == "too_many_failed_pages"
    assert "2 of 3 pages failed, 1 are tolerated" in caught.value.cause
    assert "page 2: the page could not be drawn" in caught.value.cause


def test_the_tolerance_grows_with_the_document() -> None:
    hundred = reading(*[FAILED] * 2, *[OK] * 98)
    assert check(hundred, 100).failed == 2
    with pytest.raises(DocumentRefused, match="2 of 100 pages failed, 1 are tolerated"):
        check(hundred, 100, ratio=0.01)


def test_a_document_without_text_is_not_published() -> None:
    with pytest.raises(DocumentRefused, match="2 of 2 pages are blank") as caught:
        check(reading(BLANK, BLANK), 2)
    assert caught.value.code == "no_text"
    with pytest.raises(DocumentRefused) as caught:
        check(reading(FAILED), 1)
    assert caught.value.code == "no_text"
