"""Where each stage's output lies in the artifact bucket, and its reading and writing.

Layout, under the revision (SHA-256 of the source's bytes) and the fingerprint of the stage:

    <sha256>/source.json                                what triage found (page count, outline, …)
    <sha256>/ocr-<fingerprint>/groups/<first>-<last>.jsonl   finished page groups of a reading that is under way
    <sha256>/ocr-<fingerprint>/started.json             which run began it
    <sha256>/ocr-<fingerprint>/progress.json            the page read last
    <sha256>/ocr-<fingerprint>/pages.jsonl, report.json the whole reading, one PageResult a line
    <sha256>/structure-<fingerprint>/document.json, document.md, report.json
    <sha256>/chunks-<fingerprint>/chunks.jsonl
    <sha256>/vectors-<fingerprint of the model>.npz     dense vectors of the chunks loaded last, by their text

An object store has no append, so page groups are objects of their own until the last one is there. The object that
holds a stage's result (`pages.jsonl`, `document.json`, `chunks.jsonl`) is written last and whole: if it is there, the
stage is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel

from ingestion.errors import ObjectMissing
from ingestion.job import Job
from ingestion.object_store import ObjectStore
from ocr2_core.ledger import PageResult

JSON_TYPE = "application/json"
JSON_LINES_TYPE = "application/x-ndjson"
ARCHIVE_TYPE = "application/zip"
MARKDOWN_TYPE = "text/markdown; charset=utf-8"

_GROUP_NAME = re.compile(r"/groups/(\d{6})-(\d{6})\.jsonl$")


def inspection_key(revision: str) -> str:
    return f"{revision}/source.json"


def structure_key(job: Job, name: str) -> str:
    return f"{job.known_revision}/structure-{job.fingerprints.structure}/{name}"


def chunks_key(job: Job) -> str:
    return f"{job.known_revision}/chunks-{job.fingerprints.chunks}/chunks.jsonl"


def vectors_key(revision: str, model_fingerprint: str) -> str:
    return f"{revision}/vectors-{model_fingerprint}.npz"


class ReadingProgress(BaseModel):
    """How far a reading is: written after each page, so that people and the demo can watch."""

    page_number: int
    page_count: int
    status: str
    engine: str
    duration_s: float


class Artifacts:
    """Reads and writes stage results. Methods raise what ObjectStore raises; a result not there is None or False."""

    def __init__(self, store: ObjectStore, bucket: str) -> None:
        self._store = store
        self._bucket = bucket

    def read(self, key: str) -> bytes | None:
        """An artifact's bytes, or None where it is not there."""
        try:
            return self._store.get_bytes(self._bucket, key)
        except ObjectMissing:
            return None

    def write(self, key: str, data: bytes, content_type: str) -> None:
        self._store.put_bytes(self._bucket, key, data, content_type=content_type)

    def exists(self, key: str) -> bool:
        return self._store.exists(self._bucket, key)

    def read_json(self, key: str) -> dict[str, object] | None:
        data = self.read(key)
        return None if data is None else dict(json.loads(data))

    def write_json(self, key: str, value: BaseModel | dict[str, object]) -> None:
        text = (
            value.model_dump_json(indent=1)
            if isinstance(value, BaseModel)
            else json.dumps(value, ensure_ascii=False, indent=1)
        )
        self.write(key, text.encode(), JSON_TYPE)

    def reading(self, revision: str, fingerprint: str) -> ReadingArtifacts:
        """The artifacts of one reading: its page groups and, in the end, its pages."""
        return ReadingArtifacts(self, f"{revision}/ocr-{fingerprint}")

    def keys(self, prefix: str) -> list[str]:
        return [item.key for item in self._store.list(self._bucket, prefix)]

    def remove(self, key: str) -> None:
        self._store.remove(self._bucket, key)


class ReadingArtifacts:
    """The pages of one revision read with one fingerprint, group by group and then whole."""

    def __init__(self, artifacts: Artifacts, prefix: str) -> None:
        self._artifacts = artifacts
        self._prefix = prefix

    @property
    def pages_key(self) -> str:
        return f"{self._prefix}/pages.jsonl"

    @property
    def report_key(self) -> str:
        return f"{self._prefix}/report.json"

    @property
    def progress_key(self) -> str:
        return f"{self._prefix}/progress.json"

    def is_complete(self) -> bool:
        return self._artifacts.exists(self.pages_key)

    def next_page_index(self) -> int:
        """The first page that no finished group holds; groups are written in order, so all before it are there."""
        expected = 0
        for first, last in sorted(self._group_bounds()):
            if first != expected:
                break
            expected = last + 1
        return expected

    def write_group(self, results: Sequence[PageResult]) -> None:
        """Store a finished group of consecutive pages."""
        first, last = results[0].ledger.page_index, results[-1].ledger.page_index
        self._artifacts.write(self._group_key(first, last), _to_json_lines(results), JSON_LINES_TYPE)

    def groups(self) -> Iterator[PageResult]:
        """The pages of all finished groups, in page order."""
        expected = 0
        for first, last in sorted(self._group_bounds()):
            if first != expected:
                return
            data = self._artifacts.read(self._group_key(first, last))
            if data is None:
                return
            yield from _from_json_lines(data)
            expected = last + 1

    def complete(self, results: Iterable[PageResult]) -> None:
        """Write the whole reading in one object, then drop the groups it was made of."""
        self._artifacts.write(self.pages_key, _to_json_lines(results), JSON_LINES_TYPE)
        self.drop_groups()

    def drop_groups(self) -> None:
        for key in self._artifacts.keys(f"{self._prefix}/groups/"):
            self._artifacts.remove(key)

    def begin(self, run_id: str, *, forget: bool) -> None:
        """Note which run reads. With `forget`, what other runs left is dropped; this run's own pages are kept, so that
        a retry within a forced run still goes on where it was."""
        key = f"{self._prefix}/started.json"
        started = self._artifacts.read_json(key)
        if started is not None and started.get("run_id") == run_id:
            return
        if forget:
            self._artifacts.remove(self.pages_key)
            self.drop_groups()
        if forget or started is None:
            self._artifacts.write_json(key, {"run_id": run_id})

    def pages(self) -> list[PageResult]:
        """The whole reading. Raises ObjectMissing where it was never finished."""
        data = self._artifacts.read(self.pages_key)
        if data is None:
            raise ObjectMissing("artifacts", self.pages_key)
        return list(_from_json_lines(data))

    def write_progress(self, progress: ReadingProgress) -> None:
        self._artifacts.write_json(self.progress_key, progress)

    def read_progress(self) -> ReadingProgress | None:
        data = self._artifacts.read(self.progress_key)
        return None if data is None else ReadingProgress.model_validate_json(data)

    def _group_key(self, first: int, last: int) -> str:
        return f"{self._prefix}/groups/{first:06d}-{last:06d}.jsonl"

    def _group_bounds(self) -> list[tuple[int, int]]:
        found = (_GROUP_NAME.search(key) for key in self._artifacts.keys(f"{self._prefix}/groups/"))
        return [(int(match[1]), int(match[2])) for match in found if match]


def _to_json_lines(results: Iterable[PageResult]) -> bytes:
    return "".join(f"{result.model_dump_json()}\n" for result in results).encode()


def _from_json_lines(data: bytes) -> Iterator[PageResult]:
    # only a line feed ends a record: text may hold other characters that splitlines would break at
    for line in data.split(b"\n"):
        if line:
            yield PageResult.model_validate_json(line)
