"""Fixed windows of text: the simplest way of cutting, which chunks along the structure are measured beside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from knowledge_base.chunks import Chunk, ChunkBox
from knowledge_base.language import detect_language

if TYPE_CHECKING:
    from docling_core.transforms.chunker.tokenizer.huggingface import HuggingFaceTokenizer
    from docling_core.types.doc.document import DoclingDocument

_WHOLE_PAGE = (0.0, 0.0, 999.0, 999.0)


def window_chunks(document: DoclingDocument, tokenizer: HuggingFaceTokenizer, max_tokens: int) -> Iterator[Chunk]:
    """The body's text in reading order, cut at a word every `max_tokens` tokens (a longer word stands alone). A chunk's
    boxes are its whole pages; it knows no sections."""
    words = list(_words(document))
    language = detect_language(" ".join(word for word, _ in words))
    window: list[tuple[str, int]] = []
    index = size = 0
    for word, page_number in [*words, ("", 0)]:
        count = tokenizer.count_tokens(word)
        if window and (not word or size + count > max_tokens):
            pages = sorted({page for _, page in window})
            text = " ".join(each for each, _ in window)
            yield Chunk(
                chunk_index=index,
                text=text,
                embedded_text=text,
                section_path=[],
                pages=pages,
                boxes=[ChunkBox(page_number=page, bbox_norm=_WHOLE_PAGE) for page in pages],
                labels=["text"],
                language=language,
                token_count=size,
            )
            index, window, size = index + 1, [], 0
        window.append((word, page_number))
        size += count


def _words(document: DoclingDocument) -> Iterator[tuple[str, int]]:
    """Each word of the body with its page number."""
    from docling_core.types.doc import TableItem, TextItem

    for item, _ in document.iterate_items():
        if isinstance(item, TableItem):
            text = " ".join(cell.text for cell in item.data.table_cells)
        elif isinstance(item, TextItem):
            text = item.text
        else:
            continue
        for word in text.split():
            yield word, item.prov[0].page_no
