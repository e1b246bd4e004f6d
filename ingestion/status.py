"""What is known of all sources, or of one with its page ledger."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from ingestion.artifacts import ReadingProgress
from ingestion.errors import ObjectKeyRefused, ObjectMissing
from ingestion.manifest import Manifest
from ingestion.workspace import Workspace
from ocr2_core.ledger import LedgerRow


class SourceStatus(BaseModel):
    """One source: its manifest, the ledger of its published revision, and a reading that is under way."""

    manifest: Manifest
    ledger: list[LedgerRow]
    progress: ReadingProgress | None = None


def source_address(workspace: Workspace, name: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`, or of a key of the source bucket. Raises ObjectKeyRefused for no key."""
    bucket, key = workspace.settings.source_bucket, name
    if name.startswith("s3://"):
        bucket, _, key = name.removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise ObjectKeyRefused(f"{name!r} names no object: give s3://bucket/key, or a key of the source bucket")
    return bucket, key


def source_status(workspace: Workspace, name: str) -> SourceStatus:
    """Look a source up by `s3://bucket/key` or by a key of the source bucket. Raises ObjectMissing when unknown."""
    bucket, key = source_address(workspace, name)
    manifest = workspace.manifests.read(bucket, key)
    if manifest.last_attempt is None:
        workspace.store.stat(bucket, key)
        return SourceStatus(manifest=manifest, ledger=[])
    attempt = manifest.last_attempt
    known = manifest.published or attempt
    if known.revision is None:
        return SourceStatus(manifest=manifest, ledger=[])
    reading = workspace.artifacts.reading(known.revision, known.fingerprints.ocr)
    try:
        return SourceStatus(manifest=manifest, ledger=[result.ledger for result in reading.pages()])
    except ObjectMissing:
        rows = [result.ledger for result in reading.groups()]
        return SourceStatus(manifest=manifest, ledger=rows, progress=reading.read_progress())


def all_lines(manifests: Iterable[Manifest]) -> list[str]:
    """One line a source, or a word that there is none."""
    lines = []
    for manifest in manifests:
        published = manifest.published
        content = (
            f"{published.counts.page_count} pages, {published.chunk_count} chunks" if published else "not published"
        )
        reason = manifest.last_attempt.reason if manifest.last_attempt else None
        lines.append(f"{manifest.status:<12} {manifest.uri}  {content}" + (f"  {reason}" if reason else ""))
    return lines or ["no source was ingested yet"]


def source_lines(status: SourceStatus) -> list[str]:
    """The source's line, its attempts and its page ledger."""
    manifest = status.manifest
    lines = all_lines([manifest])
    if manifest.title:
        lines.append(f"title        {manifest.title}")
    if manifest.published:
        lines.append(
            f"revision     {manifest.published.revision} of {manifest.published.published_at:%Y-%m-%d %H:%M} UTC"
        )
    for attempt in manifest.history:
        reason = f"  {attempt.reason}" if attempt.reason else ""
        lines.append(
            f"attempt      {attempt.at:%Y-%m-%d %H:%M:%S}  {attempt.status.value}  run {attempt.run_id}{reason}"
        )
    if status.progress:
        lines.append(f"reading      page {status.progress.page_number} of {status.progress.page_count}")
    for row in status.ledger:
        confidence = f"{row.confidence:.2f}" if row.confidence is not None else "-"
        lines.append(
            f"page {row.page_index + 1:>5}  {row.status.value:<9} {row.engine:<11} {row.duration_s:6.2f} s  "
            f"{row.token_count:>5} tokens  confidence {confidence}" + (f"  {row.reason}" if row.reason else "")
        )
    return lines
