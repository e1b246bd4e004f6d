"""The manifest of a source: which revision is published, how each attempt ended. One small object a source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime

from pydantic import BaseModel, Field

from ingestion.artifacts import JSON_TYPE
from ingestion.errors import ObjectMissing
from ingestion.job import Fingerprints, Job, JobStatus, Reason, SourceRef
from ingestion.object_store import ObjectStore
from ocr2_core.ledger import LedgerCounts

HISTORY_LENGTH = 20
MANIFEST_PREFIX = "manifests/"


class PublishedRevision(BaseModel):
    """What readers of the knowledge base see now."""

    revision: str
    etag: str
    size_bytes: int
    fingerprints: Fingerprints
    counts: LedgerCounts
    chunk_count: int
    status: JobStatus
    published_at: datetime


class Attempt(BaseModel):
    """How one run ended for this source."""

    run_id: str
    at: datetime
    status: JobStatus
    revision: str | None = None
    fingerprints: Fingerprints
    counts: LedgerCounts | None = None
    chunk_count: int | None = None
    reason: Reason | None = None


class Manifest(BaseModel):
    """All that is known of a source. `published` stays what it was while a newer attempt is quarantined."""

    bucket: str
    key: str
    title: str | None = None
    published: PublishedRevision | None = None
    last_attempt: Attempt | None = None
    history: list[Attempt] = Field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    @property
    def status(self) -> str:
        """The word for people: how the newest attempt ended (`unchanged` counts as what is published)."""
        if self.last_attempt is None:
            return "unknown"
        if self.last_attempt.status is JobStatus.UNCHANGED and self.published is not None:
            return self.published.status.value
        return self.last_attempt.status.value

    def published_job(self, run_id: str) -> Job | None:
        """A job that stands where the published revision ended, to read what its stages left; None for none."""
        if self.published is None:
            return None
        return Job(
            source=SourceRef(
                bucket=self.bucket, key=self.key, etag=self.published.etag, size_bytes=self.published.size_bytes
            ),
            run_id=run_id,
            fingerprints=self.published.fingerprints,
            revision=self.published.revision,
            page_count=self.published.counts.page_count,
        )

    def deleted(self, run_id: str, at: datetime) -> Manifest:
        """The tombstone: nothing is published any more, the history says what was."""
        known = self.published or self.last_attempt
        fingerprints = known.fingerprints if known else Fingerprints(ocr="", structure="", chunks="", index="")
        attempt = Attempt(
            run_id=run_id,
            at=at,
            status=JobStatus.DELETED,
            revision=known.revision if known else None,
            fingerprints=fingerprints,
        )
        return self.after(attempt).model_copy(update={"published": None})

    def after(self, attempt: Attempt, published: PublishedRevision | None = None, title: str | None = None) -> Manifest:
        """The manifest once `attempt` has ended. The history keeps what happened, not that nothing did."""
        happened = [] if attempt.status is JobStatus.UNCHANGED else [attempt]
        return self.model_copy(
            update={
                "last_attempt": attempt,
                "published": published or self.published,
                "title": title or self.title,
                "history": [*self.history, *happened][-HISTORY_LENGTH:],
            }
        )


class Manifests:
    """Reads and writes manifests.

    A manifest's key is made from a hash of the object key, not from the key itself: any key then has one, however
    long it is and whatever it holds. The manifest names its source inside.
    """

    def __init__(self, store: ObjectStore, bucket: str) -> None:
        self._store = store
        self._bucket = bucket

    @staticmethod
    def manifest_key(bucket: str, key: str) -> str:
        return f"{MANIFEST_PREFIX}{bucket}/{hashlib.sha256(key.encode()).hexdigest()}.json"

    def read(self, bucket: str, key: str) -> Manifest:
        """The source's manifest; an empty one where it was never seen."""
        try:
            data = self._store.get_bytes(self._bucket, self.manifest_key(bucket, key))
        except ObjectMissing:
            return Manifest(bucket=bucket, key=key)
        return Manifest.model_validate_json(data)

    def write(self, manifest: Manifest) -> None:
        data = manifest.model_dump_json(indent=1).encode()
        key = self.manifest_key(manifest.bucket, manifest.key)
        self._store.put_bytes(self._bucket, key, data, content_type=JSON_TYPE)

    def all(self, bucket: str | None = None) -> Iterator[Manifest]:
        """Every source's manifest, or those of one source bucket."""
        prefix = f"{MANIFEST_PREFIX}{bucket}/" if bucket else MANIFEST_PREFIX
        try:
            for item in self._store.list(self._bucket, prefix):
                yield Manifest.model_validate_json(self._store.get_bytes(self._bucket, item.key))
        except ObjectMissing:
            return


def attempt_of(job: Job) -> Attempt:
    """The record of how `job` ended."""
    return Attempt(
        run_id=job.run_id,
        at=datetime.now(UTC),
        status=job.status,
        revision=job.revision,
        fingerprints=job.fingerprints,
        counts=job.counts,
        chunk_count=job.chunk_count,
        reason=job.reason,
    )
