"""Snapshots of the live collection: by the server where there is one, else a copy of the local files."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from knowledge_base.connection import translated_errors
from knowledge_base.errors import CollectionMissing, KnowledgeBaseError
from knowledge_base.generations import live_collection

if TYPE_CHECKING:
    from knowledge_base.store import KnowledgeBase

_LOCK_SUFFIXES = (".lock", ".lock.json")


def take_snapshot(knowledge_base: KnowledgeBase, folder: Path | None = None) -> str:
    """Snapshot what readers see now; returns where it is.

    A server keeps the snapshot in its own storage (`<collection>/<name>`, restored by its API). The local store is
    packed into `folder` as a tar archive, to be unpacked in its place; nobody can write meanwhile, for this process
    holds the lock. Raises CollectionMissing before the first load, KnowledgeBaseError without a folder for local files.
    """
    options = knowledge_base.options
    name = live_collection(knowledge_base)
    if name is None:
        raise CollectionMissing(f"{options.place} has no collection {options.collection}: nothing has been loaded yet")
    if options.path is not None:
        if folder is None:
            raise KnowledgeBaseError("a snapshot of local files needs a folder to be written to")
        return str(_pack(options.path, folder, options.collection))
    with translated_errors(options.place):
        snapshot = knowledge_base.client.create_snapshot(name, wait=True)
    if snapshot is None:
        raise KnowledgeBaseError(f"{options.place} made no snapshot of {name}")
    return f"{name}/{snapshot.name}"


def list_snapshots(knowledge_base: KnowledgeBase) -> list[str]:
    """Snapshots of the live collection that a server keeps, oldest first; none for local files."""
    name = live_collection(knowledge_base)
    if name is None or knowledge_base.options.path is not None:
        return []
    with translated_errors(knowledge_base.options.place):
        snapshots = knowledge_base.client.list_snapshots(name)
    return [f"{name}/{each.name}" for each in sorted(snapshots, key=lambda each: each.creation_time or "")]


def _pack(path: Path, folder: Path, collection: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{collection}-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.tar"
    unfinished = archive.with_suffix(".tar.new")
    with tarfile.open(unfinished, "w") as tar:
        tar.add(path, arcname=path.name, filter=lambda item: None if item.name.endswith(_LOCK_SUFFIXES) else item)
    unfinished.replace(archive)
    return archive
