"""Builders of documents, chunks and revisions for these tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
from docling_core.types.doc import (
    BoundingBox,
    ContentLayer,
    CoordOrigin,
    DocItemLabel,
    DoclingDocument,
    ProvenanceItem,
    Size,
    TableCell,
    TableData,
)

from knowledge_base.chunks import Chunk, ChunkBox
from knowledge_base.embedding import Embedder
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase, LoadReport, SourceRevision

PAGE_WIDTH_PT = 600.0
PAGE_HEIGHT_PT = 800.0


def provenance(page_number: int, top: float, bottom: float, left: float = 60, right: float = 540) -> ProvenanceItem:
    box = BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=CoordOrigin.TOPLEFT)
    return ProvenanceItem(page_no=page_number, bbox=box, charspan=(0, 0))


def empty_document(page_count: int, name: str = "manual") -> DoclingDocument:
    document = DoclingDocument(name=name)
    for page_number in range(1, page_count + 1):
        document.add_page(page_no=page_number, size=Size(width=PAGE_WIDTH_PT, height=PAGE_HEIGHT_PT))
    return document


def table_data(rows: list[list[str]]) -> TableData:
    cells = [
        TableCell(
            text=text,
            start_row_offset_idx=row,
            end_row_offset_idx=row + 1,
            start_col_offset_idx=column,
            end_col_offset_idx=column + 1,
            column_header=row == 0,
        )
        for row, texts in enumerate(rows)
        for column, text in enumerate(texts)
    ]
    return TableData(num_rows=len(rows), num_cols=len(rows[0]), table_cells=cells)


def build_manual() -> DoclingDocument:
    """Three pages: title, contents, a list, a figure, a table, an empty section, a paragraph over a page break."""
    document = empty_document(4)
    document.add_title("Pump P-200 Manual", prov=provenance(1, 80, 120))
    document.add_heading("Contents", level=1, prov=provenance(1, 200, 220))
    document.add_table(
        data=table_data([["1 Installation", "2"], ["2 Maintenance", "3"]]),
        label=DocItemLabel.DOCUMENT_INDEX,
        prov=provenance(1, 240, 300),
    )
    document.add_heading("1 Installation", level=1, prov=provenance(2, 80, 100))
    document.add_heading("1.1 Tools", level=2, prov=provenance(2, 120, 140))
    document.add_text(label=DocItemLabel.TEXT, text="You need these tools:", prov=provenance(2, 160, 180))
    tools = document.add_list_group()
    document.add_list_item("a torque wrench", parent=tools, prov=provenance(2, 200, 220))
    document.add_list_item("a bubble level", parent=tools, prov=provenance(2, 220, 240))
    document.add_heading("1.2 Notes", level=2, prov=provenance(2, 300, 320))
    document.add_heading("2 Maintenance", level=1, prov=provenance(2, 600, 620))
    paragraph = document.add_text(
        label=DocItemLabel.TEXT,
        text="Change the oil of the gearbox after five hundred hours and check the seal for leaks.",
        prov=provenance(2, 720, 760),
    )
    paragraph.prov.append(provenance(3, 40, 80))
    caption = document.add_text(label=DocItemLabel.CAPTION, text="Figure 1. Seal", prov=provenance(3, 400, 420))
    document.add_picture(caption=caption, prov=provenance(3, 100, 390))
    document.add_text(
        label=DocItemLabel.PAGE_FOOTER,
        text="Confidential footer",
        prov=provenance(3, 780, 795),
        content_layer=ContentLayer.FURNITURE,
    )
    document.add_heading("2.1 Fault codes", level=2, prov=provenance(4, 40, 60))
    document.add_table(data=table_data([["Code", "Meaning"], ["E-4071", "motor blocked"]]), prov=provenance(4, 80, 160))
    return document


def make_chunk(index: int, text: str, **changes: Any) -> Chunk:
    fields: dict[str, Any] = {
        "chunk_index": index,
        "text": text,
        "embedded_text": text,
        "section_path": ["1 Start"],
        "pages": [index + 1],
        "boxes": [ChunkBox(page_number=index + 1, bbox_norm=(10.0, 20.0, 30.0, 40.0))],
        "labels": ["text"],
        "language": "en",
        "token_count": len(text.split()),
    }
    return Chunk(**(fields | changes))


def make_chunks(*texts: str) -> list[Chunk]:
    return [make_chunk(index, text) for index, text in enumerate(texts)]


def make_revision(source: str = "manuals/pump.pdf", revision: str = "a" * 64, **changes: Any) -> SourceRevision:
    fields: dict[str, Any] = {
        "source": source,
        "revision": revision,
        "fingerprint": "f1",
        "title": "Pump",
        "ingested_at": datetime(2026, 5, 1, 12, 0, tzinfo=UTC),
    }
    return SourceRevision(**(fields | changes))


class Loader:
    """Loads chunks with real vectors; keeps each text's vector so that tests stay quick."""

    def __init__(self, embedder: Embedder, sparse_encoder: SparseEncoder) -> None:
        self.embedder = embedder
        self.sparse_encoder = sparse_encoder
        self._dense: dict[str, np.ndarray] = {}

    def vectors(self, chunks: list[Chunk]) -> tuple[np.ndarray, list[Any]]:
        unknown = sorted({chunk.embedded_text for chunk in chunks} - self._dense.keys())
        self._dense.update(zip(unknown, self.embedder.encode_passages(unknown), strict=True))
        dense = np.stack([self._dense[chunk.embedded_text] for chunk in chunks])
        return dense, [self.sparse_encoder.encode_passage(chunk.embedded_text, chunk.language) for chunk in chunks]

    def __call__(self, knowledge_base: KnowledgeBase, revision: SourceRevision, chunks: list[Chunk]) -> LoadReport:
        return knowledge_base.load_revision(revision, chunks, *self.vectors(chunks))
