"""Which sources a run is about: named keys, a prefix, or what was modified in an interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from ingestion.job import SourceRef
from ingestion.object_store import ObjectInfo, ObjectStore


def list_sources(
    store: ObjectStore,
    bucket: str,
    *,
    prefix: str = "",
    keys: Sequence[str] | None = None,
    modified_from: datetime | None = None,
    modified_to: datetime | None = None,
) -> list[SourceRef]:
    """Sources in key order. `keys` wins over everything else and names objects exactly.

    The interval is half-open, modified_from <= last_modified < modified_to, so that neighbouring intervals share no
    object and miss none. Empty objects whose key ends in "/" (folders made by consoles) are no sources. Raises
    ObjectMissing for a named key or a bucket that is not there.
    """
    found: Iterable[ObjectInfo]
    if keys is not None:
        found = [store.stat(bucket, key) for key in dict.fromkeys(keys)]
    else:
        found = store.list(bucket, prefix, modified_from=modified_from, modified_to=modified_to)
    sources = [
        SourceRef(
            bucket=bucket,
            key=item.key,
            etag=item.etag,
            size_bytes=item.size_bytes,
            last_modified=item.last_modified,
        )
        for item in found
        if not (item.key.endswith("/") and item.size_bytes == 0)
    ]
    return sorted(sources, key=lambda source: source.key)
