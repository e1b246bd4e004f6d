"""The publish gate: what a reading must hold before readers may see it."""

from __future__ import annotations

from collections.abc import Sequence

from ingestion.errors import DocumentRefused
from ocr2_core.errors import LedgerMismatch
from ocr2_core.ledger import LedgerCounts, PageResult, PageStatus, reconcile

STAGE = "publish_gate"


def check(source: str, results: Sequence[PageResult], page_count: int, max_failed_page_ratio: float) -> LedgerCounts:
    """Reconcile the ledger and judge it. Returns the counts; `failed` is above 0 only within the tolerance.

    One failed page is always tolerated, more only up to `max_failed_page_ratio` of the document's pages: a page that
    cannot be read is quarantined with its reason, its document is not. Raises DocumentRefused with code
    `pages_unaccounted`, `too_many_failed_pages` or `no_text`.
    """
    try:
        counts = reconcile((result.ledger for result in results), page_count)
    except LedgerMismatch as error:
        raise DocumentRefused(
            source, STAGE, "pages_unaccounted", f"{error}.", "Read it again with force; if it comes back, report it."
        ) from error
    tolerated = max(1, int(max_failed_page_ratio * page_count))
    if counts.failed > tolerated:
        reasons = [
            f"page {result.page.page_number}: {result.ledger.reason}"
            for result in results
            if result.ledger.status is PageStatus.FAILED
        ]
        shown = "; ".join(reasons[:5]) + ("; …" if len(reasons) > 5 else "")
        raise DocumentRefused(
            source,
            STAGE,
            "too_many_failed_pages",
            f"{counts.failed} of {page_count} pages failed, {tolerated} are tolerated ({shown}).",
            "Scan these pages again, or raise max_failed_page_ratio.",
        )
    if not any(block.text.strip() for result in results for block in result.page.blocks):
        blank = f" ({counts.blank} of {page_count} pages are blank)" if counts.blank else ""
        raise DocumentRefused(
            source, STAGE, "no_text", f"no text was found on any page{blank}.", "Check that the scan is legible."
        )
    return counts
