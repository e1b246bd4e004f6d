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
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.made_up_chunks import CHUNKS_A_DOCUMENT, Words, load_document
from knowledge_base.embedding import Embedder
from knowledge_base.search import SearchMode, search
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import QdrantOptions, open_knowledge_base

MODES: tuple[SearchMode, ...] = ("dense", "sparse", "hybrid")


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
