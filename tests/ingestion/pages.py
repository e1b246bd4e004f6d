"""Page results for tests that need some, with one text block unless blank or failed."""

from __future__ import annotations

from ocr2_core.blocks import Block, BlockLabel, PageBlocks
from ocr2_core.ledger import LedgerRow, PageResult, PageStatus


def page_result(page_index: int, status: PageStatus = PageStatus.OK, text: str = "some text") -> PageResult:
    has_text = status in (PageStatus.OK, PageStatus.REPAIRED)
    blocks = [Block(label=BlockLabel.TEXT, bbox_norm=(100, 100, 900, 200), text=text)] if has_text else []
    reason = "the page could not be drawn" if status in (PageStatus.FAILED, PageStatus.REPAIRED) else None
    return PageResult(
        page=PageBlocks(page_index=page_index, width_pt=595, height_pt=842, blocks=blocks),
        ledger=LedgerRow(page_index=page_index, status=status, engine="rapidocr", duration_s=1.0, reason=reason),
    )
