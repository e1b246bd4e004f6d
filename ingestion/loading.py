"""Chunks into the knowledge base: made ready, embedded where they are new, and shown in place of the old ones."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ingestion.artifacts import ARCHIVE_TYPE, vectors_key
from ingestion.errors import DocumentRefused
from ingestion.fingerprint import fingerprint
from ingestion.job import Job
from ingestion.stored_results import inspection_of, stored_chunks, stored_document
from ingestion.workspace import Workspace

if TYPE_CHECKING:
    from docling_core.types.doc.document import DoclingDocument

    from knowledge_base.chunks import Chunk
    from knowledge_base.payload import SourceRevision
    from knowledge_base.vectors import KnownVectors
    from ocr2_core.triage import FileInspection

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedRevision:
    """A revision and its chunks, ready to be embedded. `known_revisions`: contents of this source whose vectors may
    serve again: this one, and the one published now."""

    revision: SourceRevision
    chunks: list[Chunk]
    known_revisions: tuple[str, ...]


def prepare(workspace: Workspace, job: Job) -> PreparedRevision:
    """Read the job's chunks and find its title. Raises DocumentRefused where there is no chunk."""
    from knowledge_base.payload import SourceRevision

    source = job.source
    chunks = stored_chunks(workspace, job)
    if not chunks:
        raise DocumentRefused(
            source.uri, "load", "no_chunks", "no text is left outside headers and footers.", "Check the scan."
        )
    revision = SourceRevision(
        source=source.uri,
        tenant=workspace.settings.tenant,
        revision=job.known_revision,
        fingerprint=job.fingerprints.index,
        title=_title(stored_document(workspace, job), inspection_of(workspace, job.known_revision), source.key),
        ingested_at=datetime.now(UTC),
    )
    published = workspace.manifests.read(source.bucket, source.key).published
    known = (revision.revision, *((published.revision,) if published is not None else ()))
    return PreparedRevision(revision, chunks, tuple(dict.fromkeys(known)))


def put(workspace: Workspace, prepared: PreparedRevision, collection: str | None = None) -> None:
    """Make the chunks the source's only points: in the live collection, or in a named one beside it.

    Does nothing where they are already. Vectors are kept in the object store before they are loaded, so that a load
    that died, a second key with the same bytes or a revision that changed in part embeds only what is new.
    Raises CollectionMismatch when the live collection was filled by another model.
    """
    revision, chunks = prepared.revision, prepared.chunks
    from knowledge_base.vectors import encode_chunks

    with workspace.open_knowledge_base(collection) as knowledge_base:
        if collection is None:
            knowledge_base.ensure_collection(workspace.embedder, workspace.sparse_encoder)
        if knowledge_base.holds(revision, len(chunks)):
            logger.info("%s: all %d points are there", revision.source, len(chunks))
            return
    known = _known_vectors(workspace, prepared.known_revisions)
    known_count = len(known)
    dense, sparse = encode_chunks(chunks, workspace.embedder, workspace.sparse_encoder, known)
    if len(known) > known_count:
        _keep(workspace, revision.revision, known, chunks)
    with workspace.open_knowledge_base(collection) as knowledge_base:
        report = knowledge_base.load_revision(revision, chunks, dense, sparse)
    logger.info("%s: %s, %d texts embedded", revision.source, report, len(known) - known_count)


def _known_vectors(workspace: Workspace, revisions: tuple[str, ...]) -> KnownVectors:
    from knowledge_base.vectors import KnownVectors

    known = KnownVectors()
    for revision in revisions:
        data = workspace.artifacts.read(vectors_key(revision, _model_fingerprint(workspace)))
        if data is not None:
            known.read(data, workspace.embedder.dimension)
    return known


def _keep(workspace: Workspace, revision: str, known: KnownVectors, chunks: list[Chunk]) -> None:
    """Store the vectors of this revision's chunks, and no others."""
    from knowledge_base.vectors import KnownVectors

    kept = KnownVectors()
    for text in {chunk.embedded_text for chunk in chunks}:
        vector = known.get(text)
        assert vector is not None
        kept.add([text], [vector])
    key = vectors_key(revision, _model_fingerprint(workspace))
    workspace.artifacts.write(key, kept.to_bytes(), ARCHIVE_TYPE)


def _model_fingerprint(workspace: Workspace) -> str:
    return fingerprint("vectors", workspace.embedder.identity())


def _title(document: DoclingDocument, inspection: FileInspection | None, key: str) -> str:
    """The printed title, else the file's own, else a heading that opens the document, else the last part of the key."""
    from docling_core.types.doc.document import SectionHeaderItem, TitleItem

    printed = next((item.text for item in document.texts if isinstance(item, TitleItem) and item.text), None)
    stored = inspection.title if inspection else None
    first = next((item for item, _ in document.iterate_items()), None)
    opening = first.text if isinstance(first, SectionHeaderItem) else None
    return printed or stored or opening or PurePosixPath(key).name or key
