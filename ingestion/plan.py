"""The fingerprints that a job's results will have, known before any work is done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ingestion.fingerprint import fingerprint
from ingestion.job import Fingerprints, Job, JobOptions, SourceRef
from ingestion.settings import Settings
from ingestion.workspace import Workspace

if TYPE_CHECKING:
    from knowledge_base.chunks import ChunkOptions


def chunk_options(settings: Settings) -> ChunkOptions:
    from knowledge_base.chunks import ChunkOptions

    return ChunkOptions(max_tokens=settings.max_chunk_tokens)


def plan_jobs(workspace: Workspace, sources: Iterable[SourceRef], run_id: str, options: JobOptions) -> list[Job]:
    """A job a source. The fingerprints are the same for all that nobody corrected by hand, so the models they name are
    looked at once a run."""
    sources = list(sources)
    common = plan_fingerprints(workspace, options)
    digests = workspace.corrections.digests((source.bucket, source.key) for source in sources)
    jobs = []
    for source in sources:
        fingerprints = common
        if digest := digests.get((source.bucket, source.key)):
            fingerprints = index_fingerprints(workspace, common.ocr, structure_fingerprint(common.ocr, digest))
        jobs.append(Job(source=source, run_id=run_id, options=options, fingerprints=fingerprints))
    return jobs


def plan_fingerprints(workspace: Workspace, options: JobOptions) -> Fingerprints:
    """One fingerprint a stage, each covering the stages before it: a changed setting redoes only what it touches."""
    from ocr2_core.reading import identity as reading_identity

    ocr = fingerprint(
        "ocr",
        {
            "engine": workspace.engine(options).identity(),
            "text_layer": workspace.text_layer_engine().identity(),
            "reading": reading_identity(workspace.reading_options(options)),
        },
    )
    return index_fingerprints(workspace, ocr, structure_fingerprint(ocr))


def structure_fingerprint(ocr: str, correction_digest: str = "") -> str:
    """The fingerprint of a document recovered from that reading, with those corrections by hand."""
    from structure_recovery.recover import identity

    corrections = {"corrections": correction_digest} if correction_digest else {}
    return fingerprint("structure", {**identity(), **corrections}, ocr)


def index_fingerprints(workspace: Workspace, ocr: str, structure: str) -> Fingerprints:
    """The fingerprints of chunks and points that this workspace's model makes of a recovered document."""
    from knowledge_base.chunks import CHUNKER_VERSION

    embedding = workspace.embedder.identity()
    chunking = {"version": CHUNKER_VERSION, **chunk_options(workspace.settings).model_dump()}
    chunks = fingerprint("chunks", {"chunking": chunking, "tokenizer": embedding}, structure)
    index = fingerprint("index", {"dense": embedding, "sparse": workspace.sparse_encoder.identity()}, chunks)
    return Fingerprints(ocr=ocr, structure=structure, chunks=chunks, index=index)
