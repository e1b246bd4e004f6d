"""One document tree in, chunks out: pieces of one section that fit the embedding model, with pages and boxes.

docling-core's HybridChunker decides where to cut (by structure, then by tokens; tables by rows with their header
repeated); this module gives it the model's own token count, keeps heading context within bounds and turns its chunks
into what the knowledge base stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from knowledge_base.errors import KnowledgeBaseError
from knowledge_base.language import detect_language, detect_language_of_part
from ocr2_core.geometry import BBoxNorm, from_pixels

if TYPE_CHECKING:
    from docling_core.transforms.chunker.doc_chunk import DocChunk
    from docling_core.transforms.chunker.hybrid_chunker import HybridChunker
    from docling_core.transforms.chunker.tokenizer.base import BaseTokenizer
    from docling_core.types.doc.document import DocItem, DoclingDocument

CHUNKER_VERSION = 1
"""Raise it when the same document and options would give other chunks; part of the stage fingerprint."""

DEFAULT_MAX_TOKENS = 512
"""Passages longer than this blur into one vector, whatever a long-context model could take."""

_UNREADABLE_AS_LANGUAGE = {"code", "formula", "table"}


class ChunkBox(BaseModel):
    """Where a piece of the chunk stands: `page_number` from 1, box in 0..999 of the upright page."""

    model_config = ConfigDict(frozen=True)

    page_number: int = Field(ge=1)
    bbox_norm: BBoxNorm


class Chunk(BaseModel):
    """What one Qdrant point holds.

    `text` is what users see: the passage without its headings, which `section_path` gives from the outermost down
    (without the manual's title). `embedded_text` is what the vectors are made of: title and headings, then the text.
    `token_count` counts `embedded_text` without the model's special tokens. `boxes` has one entry for each box of each
    layout element. A section without any text is a chunk of its own, its heading being its text.
    """

    chunk_index: int = Field(ge=0)
    text: str
    embedded_text: str
    section_path: list[str]
    pages: list[int]
    boxes: list[ChunkBox]
    labels: list[str]
    language: str
    token_count: int = Field(ge=0)


class ChunkOptions(BaseModel):
    """How to cut. `max_tokens`: largest passage, prompt and special tokens aside; None means the model's own limit, but
    never more than DEFAULT_MAX_TOKENS. `merge_neighbours`: join small neighbours of the same section.
    """

    model_config = ConfigDict(frozen=True)

    max_tokens: int | None = Field(default=None, ge=16)
    merge_neighbours: bool = True


def chunk_document(
    document: DoclingDocument, tokenizer: BaseTokenizer, options: ChunkOptions | None = None
) -> list[Chunk]:
    """Cut `document` into chunks in reading order; `tokenizer` is the `Embedder.tokenizer` of the model to be used.

    Furniture and contents pages give no chunks. Raises KnowledgeBaseError when `options.max_tokens` is more than the
    model can take.
    """
    options = options or ChunkOptions()
    room = tokenizer.get_max_tokens()
    if options.max_tokens is not None and options.max_tokens > room:
        raise KnowledgeBaseError(f"max_tokens {options.max_tokens} exceeds the {room} tokens that the model takes")
    max_tokens = options.max_tokens or min(room, DEFAULT_MAX_TOKENS)
    chunker = _hybrid_chunker(tokenizer, max_tokens, options.merge_neighbours)
    sections = _Sections(document)
    document_language = detect_language("\n".join(text.text for text in sections.body_texts))

    chunks: list[Chunk] = []
    for doc_chunk in cast("Iterator[DocChunk]", chunker.chunk(document)):
        items = doc_chunk.meta.doc_items
        section_path = sections.path_of(items[-1])
        text = doc_chunk.text.strip()
        if not text:
            # A section without text comes as its headings, the innermost last; a caption whose text went with its table
            # may come empty too.
            if not sections.is_heading(items[-1]) or sections.is_contents(items[-1]):
                continue
            items, text = items[-1:], (doc_chunk.meta.headings or [""])[-1]
            embedded_text = chunker.contextualize(doc_chunk).strip()
        else:
            # a section without text may have been joined with the next, if both have the same heading
            items = [item for item in items if not sections.is_heading(item)]
            embedded_text = chunker.contextualize(doc_chunk.model_copy(update={"text": text}))
        token_count = tokenizer.count_tokens(embedded_text)
        if token_count > max_tokens:
            raise KnowledgeBaseError(
                f"chunk {len(chunks)} of {document.name} has {token_count} tokens, more than the {max_tokens} allowed: "
                "please report this document"
            )
        items = sections.with_figures(items)
        boxes = _boxes(items, document)
        labels = list(dict.fromkeys(item.label.value for item in items))
        chunks.append(
            Chunk(
                chunk_index=len(chunks),
                text=text,
                embedded_text=embedded_text,
                section_path=section_path,
                pages=sorted({box.page_number for box in boxes}),
                boxes=boxes,
                labels=labels,
                language=_chunk_language(text, labels, document_language),
                token_count=token_count,
            )
        )
    return chunks


def _chunk_language(text: str, labels: list[str], document_language: str) -> str:
    """The document's language, unless the chunk is prose that is clearly in another."""
    if _UNREADABLE_AS_LANGUAGE.intersection(labels):
        return document_language
    return detect_language_of_part(text, document_language)


def _boxes(items: list[DocItem], document: DoclingDocument) -> list[ChunkBox]:
    """One box for each provenance of each item, identical ones once, in reading order."""
    boxes: dict[ChunkBox, None] = {}
    for item in items:
        for provenance in item.prov:
            size = document.pages[provenance.page_no].size
            box = provenance.bbox.to_top_left_origin(page_height=size.height)
            bbox_norm = from_pixels((box.l, box.t, box.r, box.b), size.width, size.height)
            boxes[ChunkBox(page_number=provenance.page_no, bbox_norm=bbox_norm)] = None
    return list(boxes)


class _Sections:
    """Which headings stand above each item of the body, and which sections are contents pages."""

    def __init__(self, document: DoclingDocument) -> None:
        from docling_core.types.doc.document import FloatingItem, SectionHeaderItem, TextItem, TitleItem
        from docling_core.types.doc.labels import DocItemLabel

        self.body_texts: list[TextItem] = []
        self._paths: dict[str, list[str]] = {}
        self._headings: set[str] = set()
        self._contents: set[str] = set()
        self._figure_of_caption: dict[str, DocItem] = {}
        headings: dict[int, SectionHeaderItem] = {}
        innermost_ref = ""
        for item, _ in document.iterate_items(traverse_pictures=True):
            if isinstance(item, TitleItem | SectionHeaderItem):
                innermost_ref = item.self_ref
                self._headings.add(innermost_ref)
            if isinstance(item, TitleItem):
                headings.clear()
            elif isinstance(item, SectionHeaderItem):
                headings = {level: heading for level, heading in headings.items() if level < item.level}
                headings[item.level] = item
            elif getattr(item, "label", None) == DocItemLabel.DOCUMENT_INDEX:
                self._contents.add(innermost_ref)
            elif isinstance(item, TextItem):
                self.body_texts.append(item)
            path = [headings[level].text for level in sorted(headings)]
            self._paths[item.self_ref] = path
            if isinstance(item, FloatingItem):
                for caption in item.captions:
                    self._paths[caption.cref] = path
                    self._figure_of_caption[caption.cref] = item

    def path_of(self, item: DocItem) -> list[str]:
        """Texts of the headings above `item`, outermost first; a heading is the last of its own path."""
        return list(self._paths.get(item.self_ref, []))

    def is_heading(self, item: DocItem) -> bool:
        """Whether `item` is a heading or the title."""
        return item.self_ref in self._headings

    def is_contents(self, heading: DocItem) -> bool:
        """Whether a contents page stands directly under this heading."""
        return heading.self_ref in self._contents

    def with_figures(self, items: list[DocItem]) -> list[DocItem]:
        """The items, each caption preceded by the table or picture it belongs to, every item once."""
        found: dict[str, DocItem] = {}
        for item in items:
            for each in (self._figure_of_caption.get(item.self_ref), item):
                if each is not None:
                    found.setdefault(each.self_ref, each)
        return list(found.values())


def _hybrid_chunker(tokenizer: BaseTokenizer, max_tokens: int, merge_neighbours: bool) -> HybridChunker:
    from docling_core.transforms.chunker.hierarchical_chunker import (
        ChunkingDocSerializer,
        ChunkingSerializerProvider,
    )
    from docling_core.transforms.serializer.markdown import MarkdownParams, MarkdownTableSerializer
    from docling_core.types.doc.base import ImageRefMode
    from docling_core.types.doc.labels import DocItemLabel

    params = MarkdownParams(
        labels=MarkdownParams().labels - {DocItemLabel.DOCUMENT_INDEX},
        image_mode=ImageRefMode.PLACEHOLDER,
        image_placeholder="",
        escape_underscores=False,
        escape_html=False,
        compact_tables=True,
        traverse_pictures=True,  # words read inside a picture stand below it
    )

    class MarkdownTables(ChunkingSerializerProvider):
        def get_serializer(self, doc: DoclingDocument) -> ChunkingDocSerializer:
            # Markdown, because only its tables are split with the header repeated
            return ChunkingDocSerializer(doc=doc, table_serializer=MarkdownTableSerializer(), params=params)

    limited = tokenizer.model_copy(update={"max_tokens": max_tokens})
    return _bounded_chunker_class()(
        tokenizer=limited,
        merge_peers=merge_neighbours,
        serializer_provider=MarkdownTables(),
        always_emit_headings=True,
    )


@cache
def _bounded_chunker_class() -> type[HybridChunker]:
    from docling_core.transforms.chunker.hybrid_chunker import HybridChunker

    class BoundedHeadingsChunker(HybridChunker):
        """HybridChunker whose headings never take more than half of the room, so that they are never dropped."""

        _fitting: dict[tuple[str, ...], list[str]] = PrivateAttr(default_factory=dict)

        def contextualize(self, chunk: Any) -> str:
            headings = tuple(chunk.meta.headings or ())
            if headings not in self._fitting:  # asked for many times a section
                self._fitting[headings] = self._fitting_headings(headings)
            return self.delim.join([*self._fitting[headings], chunk.text])

        def _fitting_headings(self, headings: tuple[str, ...]) -> list[str]:
            """The innermost headings that fit, outermost first; the innermost is cut when it does not fit alone."""
            budget = self.max_tokens // 2
            kept: list[str] = []
            for heading in reversed(headings):
                if self.tokenizer.count_tokens(self.delim.join([heading, *kept])) > budget:
                    break
                kept.insert(0, heading)
            if not kept and headings:
                words = headings[-1].split()
                while words and self.tokenizer.count_tokens(" ".join(words)) > budget:
                    words.pop()
                kept = [" ".join(words)] if words else []
            return kept

    return BoundedHeadingsChunker
