"""Local files and s3:// addresses that a user names, as sources in the object store."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from urllib.parse import urlsplit

from ingestion.errors import ObjectMissing, PathRefused
from ingestion.job import SourceRef
from ingestion.listing import list_sources
from ingestion.workspace import Workspace

SUFFIXES = frozenset({".pdf", ".tif", ".tiff", ".png", ".jpg", ".jpeg"})


def find_sources(workspace: Workspace, addresses: list[str]) -> list[SourceRef]:
    """The sources of all addresses, without doubles, in the order named.

    `s3://bucket/prefix` names what lies there; a local file or folder is uploaded into the source bucket first, under
    its name or its path inside the folder. Raises ObjectMissing, and PathRefused before anything is uploaded.
    """
    local_files = {address: _local_files(Path(address)) for address in addresses if not address.startswith("s3://")}
    _refuse_clashes([pair for pairs in local_files.values() for pair in pairs])
    found: dict[str, SourceRef] = {}
    for address in addresses:
        if address.startswith("s3://"):
            url = urlsplit(address.replace("?", "%3F").replace("#", "%23"))
            prefix = address.removeprefix(f"s3://{url.netloc}").removeprefix("/")
            sources = list_sources(workspace.store, url.netloc, prefix=prefix)
            if not sources:
                raise ObjectMissing(url.netloc, prefix)
        else:
            sources = [_uploaded(workspace, path, key) for path, key in local_files[address]]
        found.update((source.uri, source) for source in sources)
    return list(found.values())


def _refuse_clashes(files: list[tuple[Path, str]]) -> None:
    """Two different files under one key: the later would silently replace the earlier as a new revision of it."""
    owners: dict[str, Path] = {}
    for path, key in files:
        owner = owners.setdefault(key, path)
        if owner.resolve() != path.resolve():
            raise PathRefused(
                f"{owner} and {path} would both become the object {key!r}. "
                "Name a folder above both, or ingest them from folders of their own."
            )


def _local_files(path: Path) -> list[tuple[Path, str]]:
    """Files to upload, each with its object key."""
    if path.is_file():
        return [(path, path.name)]
    if not path.is_dir():
        raise PathRefused(f"{path} does not exist.")
    files = sorted(item for item in path.rglob("*") if item.is_file() and item.suffix.lower() in SUFFIXES)
    if not files:
        raise PathRefused(f"{path} holds no file of a known kind ({', '.join(sorted(SUFFIXES))}).")
    return [(item, item.relative_to(path).as_posix()) for item in files]


def _uploaded(workspace: Workspace, path: Path, key: str) -> SourceRef:
    """Upload a file unless the bucket holds the same bytes under its key already."""
    bucket = workspace.settings.source_bucket
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "md5").hexdigest()
        try:
            there = workspace.store.stat(bucket, key)
        except ObjectMissing:
            there = None
        if there is None or there.etag != digest:
            file.seek(0)
            content_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            workspace.store.upload(bucket, key, file, content_type=content_type)
    return list_sources(workspace.store, bucket, keys=[key])[0]
