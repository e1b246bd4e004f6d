"""Does the knowledge base hold what the object store says it should? Drift between objects, manifests and points.

| kind | what was found | `fix` |
|---|---|---|
| `deleted` | published, but the object is gone | points deleted, tombstone written |
| `orphaned` | points, loaded hours ago, of a source or revision that no manifest publishes | points deleted |
| `missing` | published, but points are missing | loaded again from the stored chunks |
| `unfinished` | hidden points of a load that died | points deleted |
| `stale` | the object changed after it was published | none: the next ingest run |
| `new` | an object that was never ingested, or was deleted and came back | none: the next ingest run |
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from ingestion.deletion import bury
from ingestion.errors import AuditRefused, ServiceUnavailable
from ingestion.job import JobStatus, SourceRef
from ingestion.listing import list_sources
from ingestion.manifest import Manifest, PublishedRevision
from ingestion.workspace import Workspace
from knowledge_base.census import ChunkSet

# An emptied or mistaken bucket must not empty the knowledge base.
MOST_DELETED_RATIO = 0.2
LEAST_SUSPICIOUS_COUNT = 5

logger = logging.getLogger(__name__)


class DriftKind(StrEnum):
    DELETED = "deleted"
    ORPHANED = "orphaned"
    MISSING = "missing"
    UNFINISHED = "unfinished"
    STALE = "stale"
    NEW = "new"

    @property
    def can_be_fixed(self) -> bool:
        """Without reading a document."""
        return self not in (DriftKind.STALE, DriftKind.NEW)


class Drift(BaseModel):
    """One difference. `chunk_set`: the points it is about, where it is about some. `is_fixed`: whether this audit made
    it good; `error`: why it could not."""

    kind: DriftKind
    source: str
    detail: str
    chunk_set: ChunkSet | None = None
    is_fixed: bool = False
    error: str | None = None


class AuditReport(BaseModel):
    """What was compared, and what differs."""

    object_count: int
    published_count: int
    point_count: int
    drift: list[Drift] = Field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to be done."""
        return all(each.is_fixed for each in self.drift)

    def lines(self) -> list[str]:
        """The report for people."""
        head = f"{self.object_count} objects, {self.published_count} published, {self.point_count} points"
        if not self.drift:
            return [f"{head}: no drift"]
        lines = [f"{head}: {len(self.drift)} differences"]
        for each in self.drift:
            state = "fixed" if each.is_fixed else each.error or ""
            lines.append(f"  {each.kind.value:<10} {each.source}  {each.detail}" + (f"  → {state}" if state else ""))
        return lines


def audit(workspace: Workspace, *, run_id: str, fix: bool = False, force: bool = False) -> AuditReport:
    """Compare the source bucket, its manifests and the points of this tenant; with `fix` make good what can be.

    Documents may be ingested meanwhile. So points are looked at before manifests and those before objects (each is
    written in the opposite order), what is younger than a load can take is nobody's orphan, and an object is looked
    for once more before its points go. One source that cannot be fixed does not stop the others.

    Raises AuditRefused where `fix` would delete more than a fifth of what is published (and at least five sources)
    without `force`, ServiceUnavailable for an outage.
    """
    settings = workspace.settings
    started = datetime.now(UTC)
    with workspace.open_knowledge_base() as knowledge_base:
        chunk_sets = knowledge_base.census(tenant=settings.tenant)
    manifests = {manifest.uri: manifest for manifest in workspace.manifests.all(settings.source_bucket)}
    objects = {source.uri: source for source in list_sources(workspace.store, settings.source_bucket)}
    published = {uri: manifest for uri, manifest in manifests.items() if manifest.published is not None}
    drift = list(_compare(objects, manifests, chunk_sets, settings.source_bucket, started))
    if fix:
        deleted = sum(each.kind is DriftKind.DELETED for each in drift)
        if not force and deleted >= LEAST_SUSPICIOUS_COUNT and deleted > MOST_DELETED_RATIO * len(published):
            raise AuditRefused(settings.source_bucket, deleted, len(published))
        drift = [_tried(workspace, each, manifests.get(each.source), run_id) for each in drift]
    return AuditReport(
        object_count=len(objects),
        published_count=len(published),
        point_count=sum(each.shown_count for each in chunk_sets),
        drift=drift,
    )


def _compare(
    objects: dict[str, SourceRef],
    manifests: dict[str, Manifest],
    chunk_sets: list[ChunkSet],
    bucket: str,
    started: datetime,
) -> Iterator[Drift]:
    by_source: dict[str, list[ChunkSet]] = {}
    for chunk_set in chunk_sets:
        # points of other buckets are other runs' business
        if chunk_set.source.startswith(f"s3://{bucket}/"):
            by_source.setdefault(chunk_set.source, []).append(chunk_set)
    for uri in sorted(objects.keys() | manifests.keys() | by_source.keys()):
        manifest, source = manifests.get(uri), objects.get(uri)
        published = manifest.published if manifest is not None else None
        if source is None and published is not None:
            yield Drift(kind=DriftKind.DELETED, source=uri, detail="the object is gone")
            continue
        yield from _compare_points(uri, published, by_source.get(uri, []), started)
        if source is not None and (manifest is None or manifest.status == JobStatus.DELETED):
            detail = "never ingested" if manifest is None else "deleted before, and there again"
            yield Drift(kind=DriftKind.NEW, source=uri, detail=detail)
        elif source is not None and published is not None and source.etag != published.etag:
            detail = f"changed after it was published on {published.published_at:%Y-%m-%d}"
            yield Drift(kind=DriftKind.STALE, source=uri, detail=detail)


def _compare_points(
    uri: str, published: PublishedRevision | None, chunk_sets: list[ChunkSet], started: datetime
) -> Iterator[Drift]:
    wanted = None if published is None else (published.revision, published.fingerprints.index)
    shown_count = 0
    for each in chunk_sets:
        if (each.revision, each.fingerprint) == wanted:
            shown_count += each.shown_count
        elif each.shown_count and each.is_settled:
            detail = f"{each.shown_count} points of no published revision"
            yield Drift(kind=DriftKind.ORPHANED, source=uri, detail=detail, chunk_set=each)
        if each.is_abandoned:
            detail = f"{each.hidden_count} points of a load that died"
            yield Drift(kind=DriftKind.UNFINISHED, source=uri, detail=detail, chunk_set=each)
    if published is not None and published.published_at < started and shown_count < published.chunk_count:
        detail = f"{shown_count} of {published.chunk_count} points are there"
        yield Drift(kind=DriftKind.MISSING, source=uri, detail=detail)


def _tried(workspace: Workspace, drift: Drift, manifest: Manifest | None, run_id: str) -> Drift:
    """The difference as it is once it was, or could not be, made good."""
    if not drift.kind.can_be_fixed:
        return drift
    try:
        _fix(workspace, drift, manifest, run_id)
    except ServiceUnavailable:
        raise
    except Exception as error:
        logger.exception("%s: %s cannot be fixed", drift.source, drift.kind.value)
        return drift.model_copy(update={"error": f"{type(error).__name__}: {error}"})
    return drift.model_copy(update={"is_fixed": True})


def _fix(workspace: Workspace, drift: Drift, manifest: Manifest | None, run_id: str) -> None:
    if drift.chunk_set is not None:
        with workspace.open_knowledge_base() as knowledge_base:
            delete = (
                knowledge_base.delete_shown if drift.kind is DriftKind.ORPHANED else knowledge_base.delete_abandoned
            )
            delete(drift.chunk_set, tenant=workspace.settings.tenant)
    elif manifest is not None and drift.kind is DriftKind.DELETED:
        if not workspace.store.exists(manifest.bucket, manifest.key):
            bury(workspace, manifest, run_id)
    elif manifest is not None and manifest.published is not None:
        now = workspace.manifests.read(manifest.bucket, manifest.key).published
        # a revision that was published meanwhile must not be replaced by the one before it
        if now == manifest.published:
            _load_again(workspace, manifest, run_id)


def _load_again(workspace: Workspace, manifest: Manifest, run_id: str) -> None:
    from ingestion.stages import load

    job = manifest.published_job(run_id)
    assert job is not None
    load(workspace, job)
