"""The whole system in five functions: fetch, read, recover, chunk, load.

Each takes the workspace and a job and returns the job with what it added. Results lie in the object store under keys
made from the revision and the stage's fingerprint; a stage whose result is there does nothing, so any stage can be
repeated at any time. `run_stage` is how schedulers and the CLI call them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ingestion import publish_gate
from ingestion.artifacts import (
    JSON_LINES_TYPE,
    JSON_TYPE,
    MARKDOWN_TYPE,
    ReadingArtifacts,
    ReadingProgress,
    chunks_key,
    inspection_key,
    structure_key,
)
from ingestion.errors import DocumentRefused, ObjectKeyRefused, ObjectMissing
from ingestion.job import Job, JobStatus
from ingestion.plan import chunk_options, structure_fingerprint
from ingestion.stored_results import inspection_of, stored_document, stored_report
from ingestion.workspace import Workspace
from ocr2_core.ledger import PageResult, PageStatus, reconcile

if TYPE_CHECKING:
    from structure_recovery.corrections import Correction

logger = logging.getLogger(__name__)

OnPage = Callable[[PageResult, int], None]


def fetch(workspace: Workspace, job: Job) -> Job:
    """Find the revision (SHA-256 of the bytes) and triage the file.

    The job comes back `unchanged` when exactly this revision is published with exactly its fingerprints. Raises
    SourceRefused for a file that cannot be read, DocumentRefused when the object is gone or its key not usable.
    """
    source = job.source
    published = workspace.manifests.read(source.bucket, source.key).published
    is_current = published is not None and published.fingerprints == job.fingerprints and not job.options.force
    if is_current and published is not None and source.etag and published.etag == source.etag:
        return job.having(
            status=JobStatus.UNCHANGED,
            revision=published.revision,
            counts=published.counts,
            page_count=published.counts.page_count,
            chunk_count=published.chunk_count,
        )
    try:
        with workspace.downloaded(source) as (path, download):
            inspection = inspection_of(workspace, download.sha256)
            if inspection is None:
                from ocr2_core.triage import inspect_file

                inspection = inspect_file(path, workspace.limits)
                workspace.artifacts.write_json(inspection_key(download.sha256), inspection)
    except ObjectMissing:
        raise DocumentRefused(
            source.uri, "fetch", "missing", "the object was removed after it was listed.", "Upload it again."
        ) from None
    except ObjectKeyRefused as error:
        raise DocumentRefused(
            source.uri, "fetch", "unsupported_key", f"{error}.", "Rename the object without '.' and '..' in its path."
        ) from error
    job = job.having(
        source=source.model_copy(update={"etag": download.etag or source.etag, "size_bytes": download.size_bytes}),
        revision=download.sha256,
        page_count=inspection.page_count,
    )
    if is_current and published is not None and published.revision == download.sha256:
        return job.having(status=JobStatus.UNCHANGED, counts=published.counts, chunk_count=published.chunk_count)
    return job


def read(workspace: Workspace, job: Job, on_page: OnPage | None = None) -> Job:
    """Read every page into blocks and ledger rows, storing page group by page group.

    A repeated run goes on at the first page that no finished group holds. `on_page` is called with each result as it
    comes and with the page count.
    """
    page_count = job.known_page_count
    reading = _reading(workspace, job)
    reading.begin(job.run_id, forget=job.options.force)
    if not reading.is_complete():
        first_page_index = reading.next_page_index()
        if first_page_index:
            logger.info("%s: pages 1 to %d are read already", job.source.uri, first_page_index)
        if first_page_index < page_count:
            _read_pages(workspace, job, reading, first_page_index, on_page)
        results = list(reading.groups())
        counts = reconcile((result.ledger for result in results), page_count)
        workspace.artifacts.write_json(reading.report_key, _reading_report(job, results))
        reading.complete(results)
    else:
        counts = reconcile((result.ledger for result in reading.pages()), page_count)
    return job.having(counts=counts)


def recover(workspace: Workspace, job: Job) -> Job:
    """Restore the document's structure from the blocks of all pages."""
    from structure_recovery.markdown import to_markdown
    from structure_recovery.recover import recover as recover_document

    artifacts = workspace.artifacts
    key, report_key = structure_key(job, "document.json"), structure_key(job, "report.json")
    if job.options.force or not artifacts.exists(key):
        inspection = inspection_of(workspace, job.known_revision)
        recovered = recover_document(
            [result.page for result in _reading(workspace, job).pages()],
            name=PurePosixPath(job.source.key).name or job.source.key,
            outline=inspection.outline if inspection else (),
            corrections=_corrections(workspace, job),
        )
        report, markdown = recovered.report, to_markdown(recovered.document)
        for unmatched in report.unmatched_corrections:
            logger.warning("%s: no block was found for a correction: %s", job.source.uri, unmatched)
        artifacts.write_json(report_key, report)
        artifacts.write(structure_key(job, "document.md"), markdown.encode(), MARKDOWN_TYPE)
        artifacts.write(key, recovered.document.model_dump_json(exclude_none=True).encode(), JSON_TYPE)
    else:
        report = stored_report(workspace, job)
    return job.having(heading_count=len(report.headings))


def chunk(workspace: Workspace, job: Job) -> Job:
    """Cut the document into chunks that fit the embedding model."""
    from knowledge_base.chunks import chunk_document

    key = chunks_key(job)
    stored = None if job.options.force else workspace.artifacts.read(key)
    if stored is None:
        document = stored_document(workspace, job)
        chunks = chunk_document(document, workspace.embedder.tokenizer, chunk_options(workspace.settings))
        stored = "".join(f"{item.model_dump_json()}\n" for item in chunks).encode()
        workspace.artifacts.write(key, stored, JSON_LINES_TYPE)
    return job.having(chunk_count=stored.count(b"\n"))


def load(workspace: Workspace, job: Job) -> Job:
    """Pass the publish gate, embed the chunks and make this revision the one that readers see.

    Raises DocumentRefused where the gate stays shut; what was published before stays then.
    """
    from ingestion.loading import prepare, put

    results = _reading(workspace, job).pages()
    max_failed_page_ratio = workspace.settings.max_failed_page_ratio
    counts = publish_gate.check(job.source.uri, results, job.known_page_count, max_failed_page_ratio)
    prepared = prepare(workspace, job)
    put(workspace, prepared)
    status = JobStatus.PARTIAL if counts.failed else JobStatus.PUBLISHED
    return job.having(status=status, counts=counts, chunk_count=len(prepared.chunks), title=prepared.revision.title)


STAGES: dict[str, Callable[..., Job]] = {
    "fetch": fetch,
    "read": read,
    "recover": recover,
    "chunk": chunk,
    "load": load,
}


def _corrections(workspace: Workspace, job: Job) -> list[Correction]:
    """The corrections that the job's fingerprint speaks of. Raises DocumentRefused where others have come since, or
    they are damaged."""
    found = workspace.corrections.read(job.source.bucket, job.source.key)
    if structure_fingerprint(job.fingerprints.ocr, found.digest) != job.fingerprints.structure:
        raise DocumentRefused(
            job.source.uri,
            "recover",
            "corrected_during_run",
            "it was corrected by hand while the run was under way.",
            "The next run takes the new corrections.",
        )
    return found.corrections


def _reading(workspace: Workspace, job: Job) -> ReadingArtifacts:
    return workspace.artifacts.reading(job.known_revision, job.fingerprints.ocr)


def _read_pages(
    workspace: Workspace, job: Job, reading: ReadingArtifacts, first_page_index: int, on_page: OnPage | None
) -> None:
    from ocr2_core.engine import GroupedEngine
    from ocr2_core.reading import read_document

    engine = workspace.engine(job.options)
    start = engine.resume_page_index(first_page_index) if isinstance(engine, GroupedEngine) else first_page_index
    page_count, group_size = job.known_page_count, workspace.settings.page_group_size
    group: list[PageResult] = []
    with workspace.downloaded(job.source) as (path, download):
        if download.sha256 != job.revision:
            raise DocumentRefused(
                job.source.uri,
                "read",
                "changed_during_run",
                "the object was replaced while it was being read.",
                "The next run takes the new revision.",
            )
        for result in read_document(
            path,
            engine,
            options=workspace.reading_options(job.options),
            inspection=inspection_of(workspace, job.known_revision),
            first_page_index=start,
            text_layer_engine=workspace.text_layer_engine(),
        ):
            row = result.ledger
            if row.page_index < first_page_index:
                # stored already; read again only for the pages that depend on it
                continue
            group.append(result)
            if len(group) == group_size or row.page_index == page_count - 1:
                reading.write_group(group)
                group = []
            reading.write_progress(
                ReadingProgress(
                    page_number=result.page.page_number,
                    page_count=page_count,
                    status=row.status.value,
                    engine=row.engine,
                    duration_s=row.duration_s,
                )
            )
            if on_page is not None:
                on_page(result, page_count)


def _reading_report(job: Job, results: list[PageResult]) -> dict[str, object]:
    counts = reconcile((result.ledger for result in results), job.known_page_count)
    return {
        "source": job.source.uri,
        "revision": job.revision,
        "counts": counts.model_dump(),
        "duration_s": round(sum(result.ledger.duration_s for result in results), 3),
        "token_count": sum(result.ledger.token_count for result in results),
        "troubled_pages": [
            result.ledger.model_dump(mode="json")
            for result in results
            if result.ledger.status in (PageStatus.FAILED, PageStatus.REPAIRED)
        ],
    }
