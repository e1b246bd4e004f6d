"""The fingerprints that a job's results will have, known before any work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingestion.fingerprint import fingerprint
from ingestion.job import Fingerprints, Job
from ingestion.settings import Settings
from ingestion.workspace import Workspace

if TYPE_CHECKING:
    from knowledge_base.chunks import ChunkOptions


def chunk_options(settings: Settings) -> ChunkOptions:
    from knowledge_base.chunks import ChunkOptions

    return ChunkOptions(max_tokens=settings.max_chunk_tokens)


def plan_fingerprints(workspace: Workspace, job: Job) -> Fingerprints:
    """One fingerprint a stage, each covering the stages before it: a changed setting redoes only what it touches."""
    from knowledge_base.chunks import identity as chunk_identity
    from ocr2_core.reading import identity as reading_identity
    from structure_recovery.recover import identity as recovery_identity

    embedding = workspace.embedder.identity()
    ocr = fingerprint(
        "ocr",
        {
            "engine": workspace.engine(job.options).identity(),
            "text_layer": workspace.text_layer_engine().identity(),
            "reading": reading_identity(workspace.reading_options(job.options)),
        },
    )
    structure = fingerprint("structure", recovery_identity(), ocr)
    chunking = {"chunking": chunk_identity(chunk_options(workspace.settings)), "tokenizer": embedding}
    chunks = fingerprint("chunks", chunking, structure)
    index = fingerprint("index", {"dense": embedding, "sparse": workspace.sparse_encoder.identity()}, chunks)
    return Fingerprints(ocr=ocr, structure=structure, chunks=chunks, index=index)
