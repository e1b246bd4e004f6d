"""Is hybrid search better than its parts, and are chunks along the structure better than fixed windows?

    python -m benchmarks.bench_retrieval CORPUS [--profile office200] [--pages N] [--reranker MODEL]

CORPUS as for `bench_structure`. The scanned manuals are read once with the CPU engine (kept beside the scan),
recovered, cut, embedded by the packaged model and loaded into one index of all manuals. Questions come from the
manuals' own contents and index pages (`knowledge_base/questions.py`) and never from what is searched: contents pages
give no chunks. An answer is a hit of the right manual that holds the page.

Ways of cutting: `structure` (`knowledge_base/chunks.py`), `windows` (`knowledge_base/windows.py`, as many tokens a
window as the model takes), `windows, mean` (windows as long as the mean chunk of `structure`). Ways of searching:
dense, sparse, hybrid. Intervals are 95 % bootstraps over questions; differences are paired. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.bench_structure import read_pages
from knowledge_base.chunks import Chunk, chunk_document
from knowledge_base.embedding import Embedder
from knowledge_base.evaluation import DEPTH, METRICS, Run, ask_all, difference
from knowledge_base.payload import SourceRevision
from knowledge_base.questions import Question, questions_of
from knowledge_base.reranking import Reranker
from knowledge_base.search import search
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase, QdrantOptions, open_knowledge_base
from knowledge_base.vectors import KnownVectors, encode_chunks
from knowledge_base.windows import window_chunks
from structure_recovery.recover import RecoveredDocument, recover

MODES = ("dense", "sparse", "hybrid")


@dataclass(frozen=True, slots=True)
class Manual:
    source: str
    recovered: RecoveredDocument
    questions: list[Question]


def read_manual(folder: Path, profile: str, page_count: int) -> Manual:
    """The first pages of a scanned manual, recovered, with its questions."""
    pages = read_pages(folder, profile, is_born=False)[:page_count]
    recovered = recover(pages, name=folder.name)
    source = f"s3://manuals/{folder.name}.pdf"
    return Manual(source, recovered, questions_of(recovered.document, recovered.report.page_labels, source))


class Bench:
    """The models, and the vectors made so far."""

    def __init__(self, reranker: str | None) -> None:
        self.embedder, self.sparse_encoder, self.known = Embedder(), SparseEncoder(), KnownVectors()
        self.reranker = Reranker(reranker) if reranker else None

    def load(self, knowledge_base: KnowledgeBase, manual: Manual, chunks: list[Chunk]) -> None:
        """Load one manual."""
        revision = SourceRevision(
            source=manual.source, revision="0" * 64, fingerprint="bench", title="", ingested_at=datetime.now(UTC)
        )
        vectors = encode_chunks(chunks, self.embedder, self.sparse_encoder, self.known)
        knowledge_base.load_revision(revision, chunks, *vectors)

    def runs(self, name: str, chunks: dict[str, list[Chunk]], manuals: list[Manual]) -> list[Run]:
        """All ways of searching in an index of these chunks."""
        questions = [question for manual in manuals for question in manual.questions]
        with (
            tempfile.TemporaryDirectory() as folder,
            open_knowledge_base(QdrantOptions(path=Path(folder) / "index")) as knowledge_base,
        ):
            knowledge_base.ensure_collection(self.embedder, self.sparse_encoder)
            for manual in manuals:
                self.load(knowledge_base, manual, chunks[manual.source])

            def asker(mode: Any, reranker: Reranker | None = None) -> Any:
                models = (self.embedder, self.sparse_encoder)
                return lambda text: search(knowledge_base, *models, text, k=DEPTH, mode=mode, reranker=reranker)

            runs = [ask_all(f"{name}: {mode}", asker(mode), questions) for mode in MODES]
            if self.reranker is not None:
                runs.append(ask_all(f"{name}: reranked", asker("hybrid", self.reranker), questions))
        return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--profile", default="office200")
    parser.add_argument("--pages", type=int, default=10_000, help="pages of each manual, from the first")
    parser.add_argument("--only", help="manuals whose name holds this")
    parser.add_argument("--reranker", help="cross-encoder folder or name")
    arguments = parser.parse_args()
    folders = [each for each in sorted(arguments.corpus.iterdir()) if (each / "truth.json").exists()]
    folders = [each for each in folders if not arguments.only or arguments.only in each.name]
    manuals = [read_manual(folder, arguments.profile, arguments.pages) for folder in folders]
    for manual in manuals:
        print(f"{manual.source}: {len(manual.questions)} questions")
    bench = Bench(arguments.reranker)
    tokenizer = bench.embedder.tokenizer
    room = tokenizer.get_max_tokens()
    structure = {each.source: chunk_document(each.recovered.document, tokenizer) for each in manuals}
    sizes = [chunk.token_count for chunks in structure.values() for chunk in chunks]
    mean = round(sum(sizes) / len(sizes))
    documents = {each.source: each.recovered.document for each in manuals}

    def in_windows(size: int) -> dict[str, list[Chunk]]:
        return {source: list(window_chunks(document, tokenizer, size)) for source, document in documents.items()}

    ways = {"structure": structure, "windows": in_windows(room), "windows, mean": in_windows(mean)}
    runs = [run for name, chunks in ways.items() for run in bench.runs(name, chunks, manuals)]
    by_name = {run.name: run for run in runs}
    chunk_counts = {name: sum(map(len, chunks.values())) for name, chunks in ways.items()}
    print(f"\n{len(runs[0].outcomes)} questions; chunks: {chunk_counts}; mean chunk of structure: {mean} tokens\n")
    print(f"{'':24}" + "".join(f"{metric:24}" for metric in METRICS))
    for run in runs:
        print(f"{run.name:24}" + "".join(f"{score!s:24}" for score in run.scores.values()))
    pairs = [
        ("structure: hybrid", "structure: dense"),
        ("structure: hybrid", "structure: sparse"),
        ("structure: hybrid", "windows: hybrid"),
        ("structure: hybrid", "windows, mean: hybrid"),
        *([("structure: reranked", "structure: hybrid")] if arguments.reranker else []),
    ]
    differences = {f"{a} - {b}": difference(by_name[a], by_name[b], "recall@5") for a, b in pairs}
    print("\nrecall@5")
    for name, score in differences.items():
        print(f"{name:50}{score}")
    result = {
        "questions": len(runs[0].outcomes),
        "pages": arguments.pages,
        "chunks": chunk_counts,
        "runs": {run.name: {name: score.model_dump() for name, score in run.scores.items()} for run in runs},
        "recall@5": {name: score.model_dump() for name, score in differences.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
