"""What the knowledge base holds, counted: one row for each chunk set, that is, source, revision and fingerprint."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from knowledge_base.payload import LOADING_SINCE

CENSUS_FIELDS = (
    "metadata.source",
    "metadata.revision",
    "metadata.fingerprint",
    "metadata.ingested_at",
    LOADING_SINCE,
)

# Hidden points that are older than this were left by a load that died; younger ones may belong to one that runs.
ABANDONED_AFTER = timedelta(hours=6)


class ChunkSet(BaseModel):
    """`shown_count` points that readers see, `hidden_count` that they do not, the oldest of them of `hidden_since`.
    `ingested_at`: when the newest load of it began."""

    source: str
    revision: str
    fingerprint: str
    ingested_at: datetime
    shown_count: int = 0
    hidden_count: int = 0
    hidden_since: datetime | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether the hidden points were left by a load that died."""
        return self.hidden_since is not None and self.hidden_since < datetime.now(UTC) - ABANDONED_AFTER

    @property
    def is_settled(self) -> bool:
        """Whether whoever loaded it has had time to write down that it did."""
        return self.ingested_at < datetime.now(UTC) - ABANDONED_AFTER


def take_census(payloads: Iterable[dict[str, Any]]) -> list[ChunkSet]:
    """Count points by their payloads (CENSUS_FIELDS are enough), by source."""
    found: dict[tuple[str, str, str], ChunkSet] = {}
    for payload in payloads:
        metadata = payload["metadata"]
        key = (metadata["source"], metadata["revision"], metadata["fingerprint"])
        ingested_at = datetime.fromisoformat(metadata["ingested_at"])
        row = found.setdefault(
            key, ChunkSet(source=key[0], revision=key[1], fingerprint=key[2], ingested_at=ingested_at)
        )
        row.ingested_at = max(row.ingested_at, ingested_at)
        mark = payload.get(LOADING_SINCE)
        if mark is None:
            row.shown_count += 1
        else:
            since = datetime.fromisoformat(mark)
            row.hidden_count += 1
            row.hidden_since = since if row.hidden_since is None else min(since, row.hidden_since)
    return [found[key] for key in sorted(found)]
