"""Page results and small PDFs for tests that need some."""

from __future__ import annotations

import io

import pymupdf

from ocr2_core.blocks import Block, BlockLabel, PageBlocks
from ocr2_core.ledger import LedgerRow, PageResult, PageStatus


def page_result(page_index: int, status: PageStatus = PageStatus.OK, text: str = "some text") -> PageResult:
    """One page's result, with one text block unless the page is blank or failed."""
    has_text = status in (PageStatus.OK, PageStatus.REPAIRED)
    blocks = [Block(label=BlockLabel.TEXT, bbox_norm=(100, 100, 900, 200), text=text)] if has_text else []
    reason = "the page could not be drawn" if status in (PageStatus.FAILED, PageStatus.REPAIRED) else None
    return PageResult(
        page=PageBlocks(page_index=page_index, width_pt=595, height_pt=842, blocks=blocks),
        ledger=LedgerRow(page_index=page_index, status=status, engine="rapidocr", duration_s=1.0, reason=reason),
    )


def text_pdf(text: str) -> bytes:
    """A one-page PDF with a text layer."""
    pdf = pymupdf.open()
    page = pdf.new_page()
    page.insert_text((72, 90), "1 Operation", fontsize=18)
    page.insert_textbox((72, 120, 520, 700), f"{text} " * 6, fontsize=11)
    buffer = io.BytesIO()
    pdf.save(buffer, no_new_id=True)
    return buffer.getvalue()
