"""Do chunks along the structure find more than fixed windows of their mean size? Asked of published documents."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ingestion.job import Job
from ingestion.stored_results import stored_chunks, stored_document
from ingestion.workspace import Workspace

if TYPE_CHECKING:
    from knowledge_base.chunks import Chunk
    from knowledge_base.evaluation import Run
    from knowledge_base.questions import Question

STRUCTURE, WINDOWS = "structure", "windows"


def chunker_runs(workspace: Workspace, jobs: Sequence[Job], questions: Sequence[Question]) -> list[Run]:
    """Two runs of hybrid search, each over an index of its own that holds these published documents alone and is gone
    afterwards. No page is read again; the knowledge base is not touched. Raises ObjectMissing for a document whose
    artifacts are gone."""
    from knowledge_base.windows import window_chunks

    along = {job.source.uri: stored_chunks(workspace, job) for job in jobs}
    sizes = [chunk.token_count for chunks in along.values() for chunk in chunks]
    mean_size = max(1, round(sum(sizes) / max(1, len(sizes))))
    tokenizer = workspace.embedder.tokenizer
    windows = {
        job.source.uri: list(window_chunks(stored_document(workspace, job), tokenizer, mean_size)) for job in jobs
    }
    return [_run(workspace, STRUCTURE, along, questions), _run(workspace, WINDOWS, windows, questions)]


def _run(
    workspace: Workspace, name: str, chunks_by_source: Mapping[str, list[Chunk]], questions: Sequence[Question]
) -> Run:
    from knowledge_base.evaluation import DEPTH, ask_all
    from knowledge_base.payload import SourceRevision
    from knowledge_base.search import SearchFilters, search
    from knowledge_base.store import QdrantOptions, open_knowledge_base
    from knowledge_base.vectors import KnownVectors, encode_chunks

    models = workspace.embedder, workspace.sparse_encoder
    tenant, known = workspace.settings.tenant, KnownVectors()
    with (
        tempfile.TemporaryDirectory(prefix="ocr2kb-") as folder,
        open_knowledge_base(QdrantOptions(path=Path(folder) / "index")) as knowledge_base,
    ):
        knowledge_base.ensure_collection(*models)
        for source, chunks in chunks_by_source.items():
            revision = SourceRevision(
                source=source,
                revision="0" * 64,
                fingerprint=name,
                title="",
                tenant=tenant,
                ingested_at=datetime.now(UTC),
            )
            knowledge_base.load_revision(revision, chunks, *encode_chunks(chunks, *models, known))
        filters = SearchFilters(tenant=tenant)
        return ask_all(name, lambda text: search(knowledge_base, *models, text, k=DEPTH, filters=filters), questions)
