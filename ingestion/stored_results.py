"""What earlier stages left in the object store, read back as what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingestion.artifacts import chunks_key, inspection_key, structure_key
from ingestion.errors import ObjectMissing
from ingestion.job import Job
from ingestion.workspace import Workspace

if TYPE_CHECKING:
    from docling_core.types.doc.document import DoclingDocument

    from knowledge_base.chunks import Chunk
    from ocr2_core.triage import FileInspection
    from structure_recovery.report import StructureReport


def inspection_of(workspace: Workspace, revision: str) -> FileInspection | None:
    """What triage found, None where the file was not looked at yet."""
    from ocr2_core.triage import FileInspection

    data = workspace.artifacts.read(inspection_key(revision))
    return None if data is None else FileInspection.model_validate_json(data)


def stored_document(workspace: Workspace, job: Job) -> DoclingDocument:
    """The recovered document. Raises ObjectMissing."""
    from docling_core.types.doc.document import DoclingDocument

    return DoclingDocument.model_validate_json(_structure(workspace, job, "document.json"))


def stored_report(workspace: Workspace, job: Job) -> StructureReport:
    """How the document's structure was decided. Raises ObjectMissing."""
    from structure_recovery.report import StructureReport

    return StructureReport.model_validate_json(_structure(workspace, job, "report.json"))


def stored_chunks(workspace: Workspace, job: Job) -> list[Chunk]:
    """The document's chunks; none where there is no text, or no chunks were made."""
    from knowledge_base.chunks import Chunk

    stored = workspace.artifacts.read(chunks_key(job)) or b""
    return [Chunk.model_validate_json(line) for line in stored.split(b"\n") if line]


def _structure(workspace: Workspace, job: Job, name: str) -> bytes:
    key = structure_key(job, name)
    data = workspace.artifacts.read(key)
    if data is None:
        raise ObjectMissing(workspace.settings.artifact_bucket, key)
    return data
