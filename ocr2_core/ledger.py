"""The page ledger: one row a page that says how its reading ended. No page is ever missing from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, Field, model_validator

from ocr2_core.blocks import PageBlocks
from ocr2_core.errors import LedgerMismatch


class PageStatus(StrEnum):
    OK = "ok"
    BLANK = "blank"
    REPAIRED = "repaired"
    FAILED = "failed"


class LedgerRow(BaseModel):
    """How one page's reading ended.

    `engine` names what read it (`rapidocr`, `text_layer`, `ocr2`, `served`, or `ink` for a page found blank),
    `duration_s` the seconds spent on the page, `token_count` the words (CPU engines) or decoded tokens (OCR2),
    `confidence` the mean over its text, weighted by length. `reason` is always given for `repaired` and `failed`.
    """

    page_index: int = Field(ge=0)
    status: PageStatus
    engine: str
    duration_s: float = Field(ge=0)
    token_count: int = Field(default=0, ge=0)
    confidence: float | None = Field(default=None, ge=0, le=1)
    reason: str | None = None

    @model_validator(mode="after")
    def _trouble_has_a_reason(self) -> LedgerRow:
        if self.status in (PageStatus.REPAIRED, PageStatus.FAILED) and not self.reason:
            raise ValueError(f"a page that is {self.status.value} needs a reason")
        return self


class PageResult(BaseModel):
    """One page as an engine hands it over, and one line of `pages.jsonl`."""

    page: PageBlocks
    ledger: LedgerRow

    @model_validator(mode="after")
    def _same_page(self) -> PageResult:
        if self.page.page_index != self.ledger.page_index:
            raise ValueError(f"blocks of page {self.page.page_index} beside the ledger row of {self.ledger.page_index}")
        return self


class LedgerCounts(BaseModel):
    """The ledger in numbers; `page_count` is what the file says, not what was read."""

    page_count: int
    ok: int = 0
    blank: int = 0
    repaired: int = 0
    failed: int = 0


def reconcile(rows: Iterable[LedgerRow], page_count: int) -> LedgerCounts:
    """Count the rows and prove that every page of the file has exactly one.

    Raises LedgerMismatch, naming the pages, when a page is missing, doubled or beyond the file's end.
    """
    by_page = Counter[int]()
    by_status = Counter[PageStatus]()
    for row in rows:
        by_page[row.page_index] += 1
        by_status[row.status] += 1
    missing = [index + 1 for index in range(page_count) if index not in by_page]
    doubled = sorted(index + 1 for index, count in by_page.items() if count > 1)
    beyond = sorted(index + 1 for index in by_page if index >= page_count)
    if missing or doubled or beyond:
        raise LedgerMismatch(page_count, missing=missing, doubled=doubled, beyond=beyond)
    return LedgerCounts(page_count=page_count, **{status.value: count for status, count in by_status.items()})
