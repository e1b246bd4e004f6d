"""What a point holds: its id and its payload, in the shape that LangChain's Qdrant store reads as it stands."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from knowledge_base.chunks import Chunk

DEFAULT_TENANT = "default"

DENSE_VECTOR = "dense"
SPARSE_VECTOR = "sparse"

# A point that is written and not yet shown to readers has this field beside its content and metadata.
LOADING_SINCE = "loading_since"

_POINT_NAMESPACE = uuid.UUID("5b1c6d0e-7a0f-5d0c-9a83-0c2b1a4f6e21")


class SourceRevision(BaseModel):
    """One content of one source, as cut by one set of settings.

    `source`: bucket and object key as users know them. `revision`: SHA-256 of the file's bytes. `fingerprint`: of the
    stage that made the chunks (code version, settings, models): changed settings make a new set of points.
    """

    model_config = ConfigDict(frozen=True)

    source: str = Field(min_length=1)
    tenant: str = Field(default=DEFAULT_TENANT, min_length=1)
    revision: str = Field(min_length=1)
    fingerprint: str = Field(min_length=1)
    title: str
    ingested_at: datetime

    @field_validator("ingested_at")
    @classmethod
    def _has_a_zone(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("ingested_at needs a time zone")
        return value


def point_id(revision: SourceRevision, chunk_index: int) -> str:
    """UUIDv5 of tenant, source, revision, fingerprint and chunk ordinal.

    The fingerprint is part of it so that re-chunking a revision writes beside the old points, as a new revision does,
    and never over them: a reader between the two steps, or after a crash, sees whole chunk sets only.
    """
    # Lengths keep the parts apart whatever characters the object key holds.
    parts = (revision.tenant, revision.source, revision.revision, revision.fingerprint, str(chunk_index))
    return str(uuid.uuid5(_POINT_NAMESPACE, "".join(f"{len(part)}:{part}" for part in parts)))


def payload(revision: SourceRevision, chunk: Chunk) -> dict[str, Any]:
    """`page_content` is the chunk's text, `metadata` all that filters and citations need."""
    return {
        "page_content": chunk.text,
        "metadata": {
            "source": revision.source,
            "title": revision.title,
            "section_path": chunk.section_path,
            "pages": chunk.pages,
            "boxes": [box.model_dump(mode="json") for box in chunk.boxes],
            "labels": chunk.labels,
            "revision": revision.revision,
            "fingerprint": revision.fingerprint,
            "chunk_index": chunk.chunk_index,
            "language": chunk.language,
            "tenant": revision.tenant,
            "ingested_at": revision.ingested_at.isoformat(),
        },
    }


def matches(field: str, *values: str) -> Any:
    """A Qdrant condition: metadata `field` is one of `values`."""
    from qdrant_client import models

    match = models.MatchValue(value=values[0]) if len(values) == 1 else models.MatchAny(any=list(values))
    return models.FieldCondition(key=f"metadata.{field}", match=match)


def shown() -> Any:
    """The Qdrant condition of every reader: the point belongs to a load that was finished.

    Whoever queries the collection without this package adds it, or sees the points of a load that is under way.
    """
    from qdrant_client import models

    return models.IsEmptyCondition(is_empty=models.PayloadField(key=LOADING_SINCE))


def loading_before(time: datetime) -> Any:
    """A Qdrant condition: the point was written before `time` by a load that was not finished."""
    from qdrant_client import models

    return models.FieldCondition(key=LOADING_SINCE, range=models.DatetimeRange(lt=time))


def of_source(source: str, tenant: str) -> list[Any]:
    """Conditions that hold for all points of one source."""
    return [matches("tenant", tenant), matches("source", source)]


def of_revision(revision: SourceRevision) -> list[Any]:
    """Conditions that hold for the points of this revision and fingerprint."""
    return [
        *of_source(revision.source, revision.tenant),
        matches("revision", revision.revision),
        matches("fingerprint", revision.fingerprint),
    ]


def check_chunks(chunks: Sequence[Chunk]) -> None:
    """Raise ValueError unless there are chunks and their ordinals are 0, 1, 2, …"""
    if not chunks:
        raise ValueError("a revision without chunks cannot be loaded: delete the source instead")
    for position, chunk in enumerate(chunks):
        if chunk.chunk_index != position:
            raise ValueError(f"chunk {position} has chunk_index {chunk.chunk_index}")
