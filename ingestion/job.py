"""What travels from stage to stage: a source, what was asked for, and keys and counts of what is there so far."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from ingestion.settings import EngineName, OcrMode
from ocr2_core.ledger import LedgerCounts


class SourceRef(BaseModel):
    """A manual as the user knows it: an object in a bucket, as it was when it was listed."""

    model_config = ConfigDict(frozen=True)

    bucket: str
    key: str
    etag: str = ""
    size_bytes: int = 0
    last_modified: datetime | None = None

    @property
    def uri(self) -> str:
        """The source's name in the knowledge base."""
        return f"s3://{self.bucket}/{self.key}"


class JobStatus(StrEnum):
    PENDING = "pending"
    UNCHANGED = "unchanged"
    PUBLISHED = "published"
    PARTIAL = "partial"
    QUARANTINED = "quarantined"
    DELETED = "deleted"

    @property
    def is_final(self) -> bool:
        return self is not JobStatus.PENDING


class Reason(BaseModel):
    """Why a document was quarantined: the stage that found it, a stable code, the cause and what to try."""

    model_config = ConfigDict(frozen=True)

    stage: str
    code: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"[{self.code}] {self.cause} {self.remedy}"


class JobOptions(BaseModel):
    """What a run asks for beyond the settings. `force` repeats every stage even where results are there."""

    model_config = ConfigDict(frozen=True)

    force: bool = False
    engine: EngineName | None = None
    ocr: OcrMode | None = None


class Fingerprints(BaseModel):
    """Of each stage: they name the artifacts (see plan.py)."""

    model_config = ConfigDict(frozen=True)

    ocr: str
    structure: str
    chunks: str
    index: str


class Job(BaseModel):
    """One document on its way. Small and JSON-able, so that a scheduler can carry it; stages return an updated copy."""

    model_config = ConfigDict(frozen=True)

    source: SourceRef
    run_id: str
    fingerprints: Fingerprints
    options: JobOptions = Field(default_factory=JobOptions)
    status: JobStatus = JobStatus.PENDING
    reason: Reason | None = None
    revision: str | None = None
    page_count: int | None = None
    counts: LedgerCounts | None = None
    heading_count: int | None = None
    chunk_count: int | None = None
    title: str | None = None

    @property
    def known_revision(self) -> str:
        """The revision; a stage that needs it runs after `fetch`."""
        if self.revision is None:
            raise ValueError(f"{self.source.uri} was not fetched yet")
        return self.revision

    @property
    def known_page_count(self) -> int:
        """The number of pages; a stage that needs it runs after `fetch`."""
        if self.page_count is None:
            raise ValueError(f"{self.source.uri} was not fetched yet")
        return self.page_count

    def having(self, **fields: object) -> Job:
        """A copy with these fields set, validated."""
        return Job.model_validate({**dict(self), **fields})
