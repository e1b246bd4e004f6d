"""Seeded chunks of made-up words, and documents of them loaded as `ocr2kb ingest` does it, for the index benchmarks."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np

from knowledge_base.chunks import Chunk, ChunkBox
from knowledge_base.payload import SourceRevision
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase

CHUNKS_A_DOCUMENT = 500
_WORDS_A_CHUNK = 80
_VOCABULARY = 20_000


class Words:
    """Text with few frequent words and many rare ones (Zipf-like, a vocabulary of 20,000)."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        syllables = [a + b for a in "bcdfglmnprst" for b in "aeiou"]
        self._words = ["".join(self._rng.choices(syllables, k=self._rng.randint(1, 4))) for _ in range(_VOCABULARY)]
        self._weights = [1 / (rank + 10) for rank in range(_VOCABULARY)]

    def text(self, count: int) -> str:
        """`count` words."""
        return " ".join(self._rng.choices(self._words, self._weights, k=count))


def load_document(knowledge_base: KnowledgeBase, number: int, words: Words, dimension: int) -> None:
    """One document of `CHUNKS_A_DOCUMENT` chunks with random unit vectors."""
    chunks, encoder = _chunks(words), SparseEncoder()
    dense = np.random.default_rng(number).standard_normal((len(chunks), dimension)).astype(np.float32)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    revision = SourceRevision(
        source=f"s3://manuals/{number}.pdf",
        revision=f"{number:064x}",
        fingerprint="bench",
        title=f"Manual {number}",
        ingested_at=datetime.now(UTC),
    )
    knowledge_base.load_revision(
        revision, chunks, dense, [encoder.encode_passage(chunk.embedded_text, "en") for chunk in chunks]
    )


def _chunks(words: Words) -> list[Chunk]:
    """One document's chunks, four a page."""
    chunks = []
    for index in range(CHUNKS_A_DOCUMENT):
        page = 1 + index // 4
        text = words.text(_WORDS_A_CHUNK)
        chunks.append(
            Chunk(
                chunk_index=index,
                text=text,
                embedded_text=text,
                section_path=[f"{index // 40 + 1} {text[:20]}"],
                pages=[page],
                boxes=[ChunkBox(page_number=page, bbox_norm=(100, 100, 900, 250))],
                labels=["text"],
                language="en",
                token_count=_WORDS_A_CHUNK,
            )
        )
    return chunks
