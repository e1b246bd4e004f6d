"""The knowledge base: load a revision of a source, delete a source, count.

A load is atomic in effect. Its points are written with a mark that hides them from readers (`payload.shown`); when all
are there, one request takes the marks off and deletes the source's other points. A search sees the old revision before
that request and the new one after it. Writing never touches a point that is there already, so a load that is repeated,
or runs twice at once, hides nothing that is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from knowledge_base import collection as schema
from knowledge_base.census import ABANDONED_AFTER, CENSUS_FIELDS, ChunkSet, take_census
from knowledge_base.chunks import Chunk
from knowledge_base.connection import QdrantOptions, open_client, release_lock, translated_errors
from knowledge_base.errors import CollectionMissing, LoadIncomplete
from knowledge_base.payload import (
    DEFAULT_TENANT,
    DENSE_VECTOR,
    LOADING_SINCE,
    SPARSE_VECTOR,
    SourceRevision,
    check_chunks,
    loading_before,
    matches,
    of_revision,
    of_source,
    payload,
    point_id,
    shown,
)
from knowledge_base.sparse import SparseVector

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from qdrant_client import QdrantClient

__all__ = ["KnowledgeBase", "LoadReport", "QdrantOptions", "SourceRevision", "open_knowledge_base"]

logger = logging.getLogger(__name__)

_SCROLL_SIZE = 1000


class LoadReport(BaseModel):
    """What a load did. `unchanged`: points there already, which stayed; `point_count`: the source's points now."""

    written: int
    deleted: int
    unchanged: int
    point_count: int


def open_knowledge_base(options: QdrantOptions) -> KnowledgeBase:
    """Open the knowledge base; use it as a context manager, or close it yourself.

    Raises KnowledgeBaseUnavailable when another process holds the local store for longer than `lock_timeout_s`. A
    server is first spoken to by the first call.
    """
    client, lock = open_client(options)
    return KnowledgeBase(client, options, lock)


class KnowledgeBase:
    """One open knowledge base. Every method raises KnowledgeBaseUnavailable when the store cannot be reached."""

    def __init__(self, client: QdrantClient, options: QdrantOptions, lock: BaseFileLock | None = None) -> None:
        self.client = client
        self.options = options
        self._lock = lock
        self._is_open = True
        self._checked: set[tuple[str, str]] = set()

    def __enter__(self) -> KnowledgeBase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client and give back the lock; closing twice does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self.client.close()
        finally:
            if self._lock is not None and self.options.path is not None:
                release_lock(self.options.path, self._lock)

    def ensure_collection(self, embedder: schema.DenseEncoder, sparse_encoder: schema.TermEncoder) -> str:
        """Make the collection and its alias if missing; return the collection's name.

        Raises CollectionMismatch when it was filled with vectors of another model or other settings.
        """
        with translated_errors(self.options.place):
            return schema.ensure_collection(self.client, self.options, embedder, sparse_encoder)

    def check_models(self, embedder: schema.DenseEncoder | None, sparse_encoder: schema.TermEncoder | None) -> None:
        """Raise CollectionMismatch unless the collection that readers see now was filled by these models.

        A reader that runs for long would otherwise go on with the old model after the alias was switched, and find
        nonsense. The answer is remembered for each collection. None is not looked at.
        """
        with self.collection() as alias:
            name = schema.collection_behind(self.client, alias) or alias
            offered = str([encoder.identity() for encoder in (embedder, sparse_encoder) if encoder is not None])
            if (name, offered) not in self._checked:
                schema.check_identity(self.client, name, embedder, sparse_encoder)
                self._checked.add((name, offered))

    def load_revision(
        self,
        revision: SourceRevision,
        chunks: Sequence[Chunk],
        dense: NDArray[np.float32],
        sparse: Sequence[SparseVector],
    ) -> LoadReport:
        """Make `chunks` the only points of the revision's source. `dense` is (n, dimension); all three in chunk order.

        New points are written hidden, counted, and shown in the request that deletes the old ones; a crash at any step
        is cured by loading again, and what is there already is not written again. Of two loads of one source at once
        the one that ends last stays.
        Raises LoadIncomplete when the count is wrong (before anything was deleted) or when another load of the source
        took over; ValueError when the input does not fit together.
        """
        check_chunks(chunks)
        if dense.shape[0] != len(chunks) or dense.ndim != 2 or len(sparse) != len(chunks):
            raise ValueError(f"{len(chunks)} chunks with dense {dense.shape} and {len(sparse)} sparse vectors")
        if not np.isfinite(dense).all():
            raise ValueError(f"the dense vectors of {revision.source} hold values that are not finite numbers")

        with self.collection():
            new, new_and_shown = _new_points(revision, len(chunks)), _new_points(revision, len(chunks), shown())
            is_present = self._count(new_and_shown) == len(chunks)
            if not is_present:
                self._write(revision, chunks, dense, sparse)
                found = self._count(new)
                if found != len(chunks):
                    raise LoadIncomplete(
                        f"{len(chunks)} points of {revision.source} were written but {found} are found; "
                        "its old points stay until a load succeeds"
                    )
            old = _old_points(revision, len(chunks), datetime.now(UTC) - ABANDONED_AFTER)
            deleted = self._count(old)
            if deleted or not is_present:
                self._switch(new, old)
                found = self._count(new_and_shown)
                if found != len(chunks):
                    raise LoadIncomplete(
                        f"{found} of {len(chunks)} points of {revision.source} are shown: another load of it ended "
                        "at the same time. Load it again."
                    )
        logger.info(
            "%s revision %.12s: %d points, %d old ones deleted",
            revision.source,
            revision.revision,
            len(chunks),
            deleted,
        )
        return LoadReport(
            written=0 if is_present else len(chunks),
            deleted=deleted,
            unchanged=len(chunks) if is_present else 0,
            point_count=len(chunks),
        )

    def holds(self, revision: SourceRevision, chunk_count: int) -> bool:
        """Whether a load of these many chunks would change nothing."""
        if not self.has_collection():
            return False
        with self.collection():
            present = self._count(_new_points(revision, chunk_count, shown()))
            others = self._count(_old_points(revision, chunk_count, datetime.now(UTC) - ABANDONED_AFTER))
        return present == chunk_count and not others

    def delete_source(self, source: str, *, tenant: str = DEFAULT_TENANT) -> int:
        """Delete all points of a source; return how many there were."""
        return self._delete_if_any([*of_source(source, tenant)])

    def delete_shown(self, chunk_set: ChunkSet, *, tenant: str = DEFAULT_TENANT) -> int:
        """Delete the points of one chunk set that readers see; return how many there were."""
        return self._delete_if_any([*_of_chunk_set(chunk_set, tenant), shown()])

    def delete_abandoned(self, chunk_set: ChunkSet, *, tenant: str = DEFAULT_TENANT) -> int:
        """Delete the hidden points of one chunk set that a load left when it died; return how many there were."""
        before = datetime.now(UTC) - ABANDONED_AFTER
        return self._delete_if_any([*_of_chunk_set(chunk_set, tenant), loading_before(before)])

    def census(self, *, tenant: str = DEFAULT_TENANT) -> list[ChunkSet]:
        """How many points each chunk set of a tenant has. Reads a few fields of every point, a page at a time."""
        if not self.has_collection():
            return []
        return take_census(record.payload or {} for record in self.scroll([matches("tenant", tenant)], CENSUS_FIELDS))

    def sources(self) -> set[tuple[str, str]]:
        """(tenant, source) of everything that readers see, of all tenants."""
        fields = ("metadata.tenant", "metadata.source")
        payloads = (record.payload["metadata"] for record in self.scroll([shown()], fields))
        return {(metadata["tenant"], metadata["source"]) for metadata in payloads}

    def scroll(self, conditions: Sequence[Any], payload_fields: Sequence[str] | bool) -> Iterator[Any]:
        """The records of all points that meet the conditions, in the order of their ids, read a page at a time.
        `payload_fields`: names, or whether to bring the payload at all."""
        with_payload = payload_fields if isinstance(payload_fields, bool) else list(payload_fields)
        offset: Any = None
        with self.collection() as name:
            while True:
                records, offset = self.client.scroll(
                    name,
                    scroll_filter=_filter(must=list(conditions)),
                    limit=_SCROLL_SIZE,
                    offset=offset,
                    with_payload=with_payload,
                )
                yield from records
                if offset is None:
                    return

    def count(
        self, source: str | None = None, *, revision: str | None = None, tenant: str | None = DEFAULT_TENANT
    ) -> int:
        """Exact number of points that readers see, of one source or revision if given; `tenant` None counts all
        tenants."""
        if not self.has_collection():
            return 0
        wanted = {"tenant": tenant, "source": source, "revision": revision}
        with self.collection():
            conditions = [matches(key, value) for key, value in wanted.items() if value]
            return self._count(_filter(must=[shown(), *conditions]))

    def point_ids(self, source: str, *, tenant: str = DEFAULT_TENANT) -> list[str]:
        """Ids of all points of a source, hidden ones too, sorted."""
        if not self.has_collection():
            return []
        return sorted(str(record.id) for record in self.scroll(of_source(source, tenant), payload_fields=False))

    def has_collection(self) -> bool:
        """Whether anything stands behind the alias: false before the first load."""
        with translated_errors(self.options.place):
            return self.client.collection_exists(self.options.collection)

    @contextmanager
    def collection(self) -> Iterator[str]:
        """The alias to use in requests, with errors translated; raises CollectionMissing when nothing is behind it."""
        alias = self.options.collection
        if not self.has_collection():
            raise CollectionMissing(f"{self.options.place} has no collection {alias}: nothing has been loaded yet")
        with translated_errors(self.options.place):
            yield alias

    def _write(
        self,
        revision: SourceRevision,
        chunks: Sequence[Chunk],
        dense: NDArray[np.float32],
        sparse: Sequence[SparseVector],
    ) -> None:
        from qdrant_client import models

        size = self.options.upload_batch_size
        mark = {LOADING_SINCE: datetime.now(UTC).isoformat()}
        for start in range(0, len(chunks), size):
            points = [
                models.PointStruct(
                    id=point_id(revision, chunk.chunk_index),
                    vector={
                        DENSE_VECTOR: vector.tolist(),
                        SPARSE_VECTOR: models.SparseVector(indices=list(terms.indices), values=list(terms.values)),
                    },
                    payload={**payload(revision, chunk), **mark},
                )
                for chunk, vector, terms in zip(
                    chunks[start : start + size],
                    dense[start : start + size],
                    sparse[start : start + size],
                    strict=True,
                )
            ]
            self.client.upsert(self.options.collection, points, wait=True, update_mode=models.UpdateMode.INSERT_ONLY)

    def _switch(self, new: Any, old: Any) -> None:
        """Show the new points and delete the old ones, in one request."""
        from qdrant_client import models

        self.client.batch_update_points(
            self.options.collection,
            [
                models.DeletePayloadOperation(delete_payload=models.DeletePayload(keys=[LOADING_SINCE], filter=new)),
                models.DeleteOperation(delete=models.FilterSelector(filter=old)),
            ],
            wait=True,
        )

    def _count(self, wanted: Any) -> int:
        return self.client.count(self.options.collection, count_filter=wanted, exact=True).count

    def _delete_if_any(self, conditions: list[Any]) -> int:
        if not self.has_collection():
            return 0
        with self.collection():
            return self._delete(_filter(must=conditions))

    def _delete(self, unwanted: Any) -> int:
        from qdrant_client import models

        doomed = self._count(unwanted)
        if doomed:
            self.client.delete(self.options.collection, models.FilterSelector(filter=unwanted), wait=True)
        return doomed


def _filter(**clauses: Any) -> Any:
    from qdrant_client import models

    return models.Filter(**clauses)


def _of_chunk_set(chunk_set: ChunkSet, tenant: str) -> list[Any]:
    return [
        *of_source(chunk_set.source, tenant),
        matches("revision", chunk_set.revision),
        matches("fingerprint", chunk_set.fingerprint),
    ]


def _beyond(chunk_count: int) -> Any:
    from qdrant_client import models

    return models.FieldCondition(key="metadata.chunk_index", range=models.Range(gte=chunk_count))


def _new_points(revision: SourceRevision, chunk_count: int, *conditions: Any) -> Any:
    """The points that a load of `chunk_count` chunks writes."""
    return _filter(must=[*of_revision(revision), *conditions], must_not=[_beyond(chunk_count)])


def _old_points(revision: SourceRevision, chunk_count: int, abandoned_before: datetime) -> Any:
    """All other points of the source that readers see, or that a load left which began before `abandoned_before`:
    other revisions or fingerprints, and ordinals beyond the last chunk."""
    is_this_chunk_set = _filter(must=of_revision(revision))
    return _filter(
        must=[
            *of_source(revision.source, revision.tenant),
            _filter(should=[shown(), loading_before(abandoned_before)]),
        ],
        should=[_filter(must_not=[is_this_chunk_set]), _beyond(chunk_count)],
    )
