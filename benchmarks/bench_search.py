"""How long does a search take in the embedded default, and how does it grow with the number of chunks?

    python -m benchmarks.bench_search [--sizes 5000,15000,50000] [--questions 20]

Chunks of made-up words (80 of a Zipf-like vocabulary of 20,000, seeded), 500 a document, with random unit vectors of
the packaged model's size, are loaded into the embedded index as `ocr2kb ingest` does it. Then the same questions are
asked by dense, sparse and hybrid search through `knowledge_base.search`, the question's embedding included and timed
beside it; also the time to open the index, which each command of the CLI pays. CPU seconds of this process, one thread
of torch, median over questions. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from knowledge_base.chunks import Chunk, ChunkBox
from knowledge_base.embedding import Embedder
from knowledge_base.payload import SourceRevision
from knowledge_base.search import SearchMode, search
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase, QdrantOptions, open_knowledge_base

CHUNKS_A_DOCUMENT = 500
_WORDS_A_CHUNK = 80
_VOCABULARY = 20_000
MODES: tuple[SearchMode, ...] = ("dense", "sparse", "hybrid")


class Words:
    """Seeded text with few frequent words and many rare ones."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        syllables = [a + b for a in "bcdfglmnprst" for b in "aeiou"]
        self._words = ["".join(self._rng.choices(syllables, k=self._rng.randint(1, 4))) for _ in range(_VOCABULARY)]
        self._weights = [1 / (rank + 10) for rank in range(_VOCABULARY)]

    def text(self, count: int) -> str:
        """`count` words."""
        return " ".join(self._rng.choices(self._words, self._weights, k=count))


def chunks_of(words: Words, first_page: int) -> list[Chunk]:
    """One document's chunks, four a page."""
    chunks = []
    for index in range(CHUNKS_A_DOCUMENT):
        page = first_page + index // 4
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


def load_document(knowledge_base: KnowledgeBase, number: int, words: Words, dimension: int) -> None:
    """One document of `CHUNKS_A_DOCUMENT` chunks."""
    chunks, encoder = chunks_of(words, 1), SparseEncoder()
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


def measure(path: Path, size: int, embedder: Embedder, questions: list[str]) -> dict[str, float]:
    """Open the index and ask."""
    encoder = SparseEncoder()
    started = time.process_time()
    with open_knowledge_base(QdrantOptions(path=path)) as knowledge_base:
        knowledge_base.has_collection()
        row: dict[str, float] = {"chunks": size, "open_s": time.process_time() - started}
        row["embedding_ms"] = _median_ms(lambda text: embedder.encode_query(text), questions)
        for mode in MODES:
            row[f"{mode}_ms"] = _median_ms(
                lambda text, mode=mode: search(knowledge_base, embedder, encoder, text, mode=mode), questions
            )
    row["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def _median_ms(ask: object, questions: list[str]) -> float:
    times = []
    for text in questions:
        started = time.process_time()
        ask(text)  # type: ignore[operator]
        times.append((time.process_time() - started) * 1000)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="5000,15000,50000", help="numbers of chunks")
    parser.add_argument("--questions", type=int, default=20)
    arguments = parser.parse_args()
    embedder = Embedder(thread_count=1)
    words = Words(1)
    questions = [Words(2 + number).text(6) for number in range(arguments.questions + 1)]
    rows, loaded = [], 0
    print(f"{'chunks':>8}{'load s':>8}{'open s':>8}{'embed ms':>10}" + "".join(f"{mode + ' ms':>12}" for mode in MODES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        for size in (int(each) for each in arguments.sizes.split(",")):
            started = time.process_time()
            with open_knowledge_base(QdrantOptions(path=path)) as knowledge_base:
                knowledge_base.ensure_collection(embedder, SparseEncoder())
                while loaded < size:
                    load_document(knowledge_base, loaded // CHUNKS_A_DOCUMENT, words, embedder.dimension)
                    loaded += CHUNKS_A_DOCUMENT
            load_s = time.process_time() - started
            row = measure(path, loaded, embedder, questions)
            rows.append({**row, "load_s": load_s})
            told = "".join(f"{row[f'{mode}_ms']:12.0f}" for mode in MODES)
            print(f"{loaded:8}{load_s:8.1f}{row['open_s']:8.2f}{row['embedding_ms']:10.1f}{told}", flush=True)
    last = rows[-1]
    print("times the embedding: " + ", ".join(f"{m} {last[f'{m}_ms'] / last['embedding_ms']:.1f}" for m in MODES))
    print(json.dumps(rows))


if __name__ == "__main__":
    sys.exit(main())
