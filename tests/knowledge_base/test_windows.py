"""Fixed windows: every word once, in order, with its page, and no more tokens than asked for."""

from __future__ import annotations

from docling_core.types.doc import DocItemLabel

from knowledge_base.embedding import Embedder
from knowledge_base.windows import window_chunks
from tests.knowledge_base.builders import empty_document, provenance, table_data


def test_windows_hold_every_word_once_with_its_page(embedder: Embedder) -> None:
    document = empty_document(2)
    document.add_heading("Oil", level=1, prov=provenance(1, 80, 100))
    document.add_text(label=DocItemLabel.TEXT, text="Drain the oil while it is warm.", prov=provenance(1, 120, 140))
    document.add_table(data=table_data([["grade", "32"], ["litres", "2"]]), prov=provenance(2, 80, 120))
    chunks = list(window_chunks(document, embedder.tokenizer, 5))
    assert [chunk.text for chunk in chunks] == ["Oil Drain the oil while", "it is warm. grade", "32 litres 2"]
    assert [chunk.pages for chunk in chunks] == [[1], [1, 2], [2]]
    assert [chunk.token_count for chunk in chunks] == [5, 5, 3]
    assert [chunk.chunk_index for chunk in chunks] == [0, 1, 2]
    assert list(window_chunks(empty_document(1), embedder.tokenizer, 5)) == []
