"""Stages run in order, with each document's end recorded: how the CLI and the scheduler's tasks call them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from ingestion.errors import DocumentRefused, IngestionError, ServiceUnavailable
from ingestion.job import Job, JobOptions, JobStatus, Reason, SourceRef
from ingestion.manifest import PublishedRevision, attempt_of
from ingestion.plan import plan_jobs
from ingestion.stages import STAGES, OnPage
from ingestion.workspace import Workspace
from ocr2_core.errors import SourceRefused

logger = logging.getLogger(__name__)

OnStage = Callable[[str, Job], None]


def run_stage(name: str, workspace: Workspace, job: Job, on_page: OnPage | None = None) -> Job:
    """Run one stage of `STAGES` on a job; a job that has ended passes through untouched.

    A document that is refused comes back `quarantined` with its reason. Whenever the job ends here, its manifest says
    so before this returns. Raises ServiceUnavailable for an outage (worth a retry); other errors are faults.
    """
    if job.status.is_final:
        return job
    try:
        job = STAGES[name](workspace, job, on_page) if name == "read" else STAGES[name](workspace, job)
    except DocumentRefused as error:
        job = _quarantined(job, Reason(stage=error.stage, code=error.code, cause=error.cause, remedy=error.remedy))
    except SourceRefused as error:
        job = _quarantined(job, Reason(stage=name, code=error.code, cause=error.cause, remedy=error.remedy))
    if job.status.is_final:
        record(workspace, job)
    return job


def record(workspace: Workspace, job: Job) -> None:
    """Write into the source's manifest how the job ended."""
    manifest = workspace.manifests.read(job.source.bucket, job.source.key)
    published = None
    if job.status in (JobStatus.PUBLISHED, JobStatus.PARTIAL):
        assert job.counts is not None
        assert job.chunk_count is not None
        published = PublishedRevision(
            revision=job.known_revision,
            etag=job.source.etag,
            size_bytes=job.source.size_bytes,
            fingerprints=job.fingerprints,
            counts=job.counts,
            chunk_count=job.chunk_count,
            status=job.status,
            published_at=datetime.now(UTC),
        )
    elif job.status is JobStatus.UNCHANGED and manifest.published is not None:
        # the same bytes, perhaps put there anew
        published = manifest.published.model_copy(update={"etag": job.source.etag, "size_bytes": job.source.size_bytes})
    workspace.manifests.write(manifest.after(attempt_of(job), published, job.title))


def ingest(
    workspace: Workspace,
    sources: Iterable[SourceRef],
    *,
    run_id: str,
    options: JobOptions | None = None,
    on_stage: OnStage | None = None,
    on_page: OnPage | None = None,
) -> list[Job]:
    """All stages for each source, one after the other, without a scheduler.

    One document's fault is logged and leaves the others going; its job comes back `pending`. `on_stage` is called
    before each stage and, with "done", after the last. Raises ServiceUnavailable when a service is down: no other
    document would fare better.
    """
    jobs = []
    for job in plan_jobs(workspace, sources, run_id, options or JobOptions()):
        source = job.source
        try:
            for name in STAGES:
                if on_stage is not None and not job.status.is_final:
                    on_stage(name, job)
                job = run_stage(name, workspace, job, on_page)
        except ServiceUnavailable:
            raise
        except IngestionError as error:
            logger.error("%s: %s", source.uri, error)
        except Exception:
            logger.exception("%s: a fault of ocr2-kb, please report it", source.uri)
        if on_stage is not None:
            on_stage("done", job)
        jobs.append(job)
    return jobs


def _quarantined(job: Job, reason: Reason) -> Job:
    logger.warning("%s is quarantined: %s", job.source.uri, reason)
    return job.having(status=JobStatus.QUARANTINED, reason=reason)
