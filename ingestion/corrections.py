"""Corrections by hand, kept beside the manifests: one small object a source, whatever its revision."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from pydantic import BaseModel, Field, ValidationError

from ingestion.artifacts import JSON_TYPE
from ingestion.errors import DocumentRefused, ObjectMissing
from ingestion.object_store import ObjectStore
from structure_recovery.corrections import Correction, is_same_block

CORRECTION_PREFIX = "corrections/"


class SourceCorrections(BaseModel):
    """All corrections of a source, in the order in which they were made."""

    bucket: str
    key: str
    corrections: list[Correction] = Field(default_factory=list)

    @property
    def digest(self) -> str:
        """A hash of what they say; empty where there is none."""
        if not self.corrections:
            return ""
        lines = "\n".join(correction.model_dump_json() for correction in self.corrections)
        return hashlib.sha256(lines.encode()).hexdigest()

    def having(self, correction: Correction) -> SourceCorrections:
        """With one more; what it leaves open stays as an earlier one of the same block said."""
        kept = []
        for earlier in self.corrections:
            is_same = earlier.page_number == correction.page_number
            if is_same and is_same_block(earlier.bbox_norm, correction.bbox_norm):
                correction = correction.over(earlier)
            else:
                kept.append(earlier)
        return self.model_copy(update={"corrections": [*kept, correction]})

    def without(self, number: int) -> SourceCorrections:
        """Without the one of this number (from 1). Raises IndexError."""
        if not 1 <= number <= len(self.corrections):
            raise IndexError(f"there is no correction {number}: {len(self.corrections)} in all")
        kept = [correction for index, correction in enumerate(self.corrections, 1) if index != number]
        return self.model_copy(update={"corrections": kept})


class CorrectionStore:
    """Reads and writes them. Methods raise what ObjectStore raises."""

    def __init__(self, store: ObjectStore, bucket: str) -> None:
        self._store = store
        self._bucket = bucket

    def read(self, bucket: str, key: str) -> SourceCorrections:
        """The source's corrections, none where none were made. Raises DocumentRefused where they are damaged."""
        name = _object_key(bucket, key)
        try:
            data = self._store.get_bytes(self._bucket, name)
        except ObjectMissing:
            return SourceCorrections(bucket=bucket, key=key)
        try:
            return SourceCorrections.model_validate_json(data)
        except ValidationError as error:
            raise DocumentRefused(
                f"s3://{bucket}/{key}",
                "recover",
                "corrections_unreadable",
                f"its corrections in s3://{self._bucket}/{name} cannot be read: {error.errors()[0]['msg']}.",
                "Mend that object, or delete it and make them anew.",
            ) from error

    def write(self, corrections: SourceCorrections) -> None:
        """Keep them; those of one source that two people make at the same moment, the later one's."""
        key = _object_key(corrections.bucket, corrections.key)
        data = corrections.model_dump_json(indent=1, exclude_none=True).encode()
        self._store.put_bytes(self._bucket, key, data, content_type=JSON_TYPE)

    def digests(self, sources: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """(bucket, key) → digest of those among the sources that were corrected. What cannot be read has a digest that
        no corrections have: the source is refused when its turn comes, and holds up no other."""
        sources = list(sources)
        names: set[str] = set()
        for bucket in dict.fromkeys(bucket for bucket, _ in sources):
            try:
                names.update(item.key for item in self._store.list(self._bucket, f"{CORRECTION_PREFIX}{bucket}/"))
            except ObjectMissing:
                return {}
        found = {}
        for bucket, key in sources:
            if _object_key(bucket, key) not in names:
                continue
            try:
                digest = self.read(bucket, key).digest
            except DocumentRefused:
                digest = "unreadable"
            if digest:
                found[bucket, key] = digest
        return found


def _object_key(bucket: str, key: str) -> str:
    # any object key has one, however long it is: see Manifests
    return f"{CORRECTION_PREFIX}{bucket}/{hashlib.sha256(key.encode()).hexdigest()}.json"
