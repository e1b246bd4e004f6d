"""Take sources out of the knowledge base: their points go, a tombstone stays in the manifest."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from ingestion.errors import ObjectMissing, SourceStillThere
from ingestion.manifest import Manifest
from ingestion.workspace import Workspace

logger = logging.getLogger(__name__)


def delete_source(workspace: Workspace, bucket: str, key: str, *, run_id: str, with_object: bool = False) -> int:
    """Delete the source's points and write its tombstone; returns how many points there were.

    `with_object` deletes the object too. Raises ObjectMissing for a source that was never known, SourceStillThere where
    the object is there and would be ingested again.
    """
    manifest = workspace.manifests.read(bucket, key)
    is_there = workspace.store.exists(bucket, key)
    if manifest.last_attempt is None and not is_there:
        raise ObjectMissing(bucket, key)
    if is_there and not with_object:
        raise SourceStillThere(bucket, key)
    if is_there:
        workspace.store.remove(bucket, key)
    return bury(workspace, manifest, run_id)


def bury(workspace: Workspace, manifest: Manifest, run_id: str) -> int:
    """The points go first: a crash in between leaves a manifest that asks for the same again."""
    with workspace.open_knowledge_base() as knowledge_base:
        point_count = knowledge_base.delete_source(manifest.uri, tenant=workspace.settings.tenant)
    workspace.manifests.write(manifest.deleted(run_id, datetime.now(UTC)))
    logger.info("%s is deleted: %d points", manifest.uri, point_count)
    return point_count
