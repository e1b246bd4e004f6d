"""A published document and what its stages left in the object store: for looking at it, and for correcting it."""

from __future__ import annotations

from pathlib import Path

from ingestion.artifacts import ReadingArtifacts
from ingestion.corrections import SourceCorrections
from ingestion.document_view import write_view
from ingestion.errors import DocumentRefused, SourceChanged
from ingestion.job import Job
from ingestion.pictures import upright_pages
from ingestion.stored_results import stored_document, stored_report
from ingestion.workspace import Workspace
from structure_recovery.corrections import Correction, text_at


def write_published_view(workspace: Workspace, bucket: str, key: str, folder: Path) -> Path:
    """Write `view.html` and its page images into `folder`; the path of the former.

    Raises DocumentRefused for a source that is not published, SourceChanged where the file is no longer the one that
    was, ObjectMissing where it is gone.
    """
    job = _published_job(workspace, bucket, key)
    results = list(_reading(workspace, job).pages())
    turns = {result.page.page_index: result.page.rotation_degrees for result in results}
    document, report = stored_document(workspace, job), stored_report(workspace, job)
    with workspace.downloaded(job.source) as (path, download):
        if download.sha256 != job.revision:
            raise SourceChanged(job.source.uri)
        images = upright_pages(path, workspace.limits, turns, [result.page.page_number for result in results])
        return write_view(folder, document, report, [result.ledger for result in results], images)


def correct(workspace: Workspace, bucket: str, key: str, correction: Correction) -> SourceCorrections:
    """Keep a correction of a published document for its next run; all of the source's corrections.

    Raises DocumentRefused for a source that is not published, and where no block lies at that place.
    """
    job = _published_job(workspace, bucket, key)
    pages = (result.page for result in _reading(workspace, job).pages())
    page = next((each for each in pages if each.page_number == correction.page_number), None)
    text = None if page is None else text_at(page, correction)
    if text is None:
        raise DocumentRefused(
            job.source.uri,
            "correct",
            "no_block",
            f"page {correction.page_number} has no block at this place."
            if page is not None
            else f"it has no page {correction.page_number}.",
            "Look up the box in the page that `ocr2kb view` writes.",
        )
    corrections = workspace.corrections.read(bucket, key)
    corrections = corrections.having(correction.model_copy(update={"seen_text": text}))
    workspace.corrections.write(corrections)
    return corrections


def _published_job(workspace: Workspace, bucket: str, key: str) -> Job:
    job = workspace.manifests.read(bucket, key).published_job("published")
    if job is None:
        raise DocumentRefused(
            f"s3://{bucket}/{key}", "view", "not_published", "it is not in the knowledge base.", "Ingest it first."
        )
    return job


def _reading(workspace: Workspace, job: Job) -> ReadingArtifacts:
    return workspace.artifacts.reading(job.known_revision, job.fingerprints.ocr)
