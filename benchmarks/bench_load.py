"""What does loading cost, and does a chunk cost more the more there are?

    python -m benchmarks.bench_load [--chunks 100000] [--url http://127.0.0.1:6333]

Documents of 500 made-up chunks (`made_up_chunks`) with vectors of the packaged model's size go in one after another,
each with everything that makes a load safe: insert hidden, count, show, delete what was before. Without `--url` into
the embedded index; with it into a collection of that server, which is created and dropped. Dense vectors are random,
sparse ones are made here as always.

A row for every tenth of the chunks: chunks a second, by the clock and by this process's CPU, which in the embedded
index includes building its HNSW graphs; memory; size on disk. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil

from benchmarks.made_up_chunks import CHUNKS_A_DOCUMENT, Words, load_document
from knowledge_base.embedding import Embedder
from knowledge_base.generations import live_collection
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase, QdrantOptions, open_knowledge_base


def load(
    knowledge_base: KnowledgeBase, chunk_count: int, dimension: int, folder: Path | None
) -> list[dict[str, float]]:
    """Ten rows."""
    words, rows = Words(1), []
    document_count = chunk_count // CHUNKS_A_DOCUMENT
    wall, cpu, loaded = time.monotonic(), time.process_time(), 0
    for number in range(document_count):
        load_document(knowledge_base, number, words, dimension)
        loaded += CHUNKS_A_DOCUMENT
        if (number + 1) * 10 // document_count == number * 10 // document_count:
            continue
        row = {
            "chunks": (number + 1) * CHUNKS_A_DOCUMENT,
            "chunks_a_second": loaded / (time.monotonic() - wall),
            "chunks_a_cpu_second": loaded / (time.process_time() - cpu),
            "rss_mb": psutil.Process().memory_info().rss / 2**20,
            "disk_mb": _disk_mb(folder) if folder else 0.0,
        }
        rows.append(row)
        told = f"{row['chunks_a_second']:10.0f}{row['chunks_a_cpu_second']:14.0f}{row['rss_mb']:10.0f}"
        print(f"{row['chunks']:8}{told}{row['disk_mb']:10.0f}", flush=True)
        wall, cpu, loaded = time.monotonic(), time.process_time(), 0
    return rows


def _disk_mb(folder: Path) -> float:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--url", help="a Qdrant server in place of the embedded index")
    arguments = parser.parse_args()
    embedder = Embedder(thread_count=1)
    print(f"{'chunks':>8}{'chunks/s':>10}{'chunks/CPU s':>14}{'RSS MB':>10}{'disk MB':>10}")
    with tempfile.TemporaryDirectory() as name:
        folder = None if arguments.url else Path(name) / "index"
        options = QdrantOptions(url=arguments.url, path=folder, collection=f"bench_{uuid.uuid4().hex[:8]}")
        with open_knowledge_base(options) as knowledge_base:
            knowledge_base.ensure_collection(embedder, SparseEncoder())
            try:
                rows = load(knowledge_base, arguments.chunks, embedder.dimension, folder)
            finally:
                if arguments.url:
                    knowledge_base.client.delete_collection(live_collection(knowledge_base) or options.collection)
    growth = rows[0]["chunks_a_cpu_second"] / rows[-1]["chunks_a_cpu_second"]
    print(f"a chunk of the last tenth costs {growth:.2f} times one of the first")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": rows, "growth": growth, "peak_rss_mb": peak_mb}))


if __name__ == "__main__":
    sys.exit(main())
