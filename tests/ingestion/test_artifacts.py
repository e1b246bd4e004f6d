"""Page groups, whole readings and manifests in a real object store."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ingestion.artifacts import Artifacts, ReadingProgress
from ingestion.errors import ObjectMissing
from ingestion.job import Fingerprints, JobStatus
from ingestion.manifest import Attempt, Manifest, Manifests
from ingestion.object_store import ObjectStore
from ingestion.settings import Settings
from tests.ingestion.pages import page_result

REVISION = "0" * 64
FINGERPRINTS = Fingerprints(ocr="o", structure="s", chunks="c", index="i")


@pytest.fixture
def artifacts(store: ObjectStore, settings: Settings) -> Artifacts:
    return Artifacts(store, settings.artifact_bucket)


def test_a_reading_goes_on_after_its_last_finished_group(artifacts: Artifacts) -> None:
    reading = artifacts.reading(REVISION, "f1")
    assert reading.next_page_index() == 0
    reading.write_group([page_result(0), page_result(1)])
    reading.write_group([page_result(2), page_result(3)])
    assert reading.next_page_index() == 4
    # a group beyond a gap is not trusted: pages 4 and 5 are missing
    reading.write_group([page_result(6)])
    assert reading.next_page_index() == 4
    assert [result.ledger.page_index for result in reading.groups()] == [0, 1, 2, 3]


def test_a_complete_reading_leaves_no_groups(artifacts: Artifacts) -> None:
    reading = artifacts.reading(REVISION, "f1")
    # U+2028 is a line end for str.splitlines, but not in JSON lines
    reading.write_group([page_result(0, text="one\u2028two")])
    assert not reading.is_complete()
    with pytest.raises(ObjectMissing):
        reading.pages()
    reading.complete(list(reading.groups()))
    assert reading.is_complete()
    assert [result.page.blocks[0].text for result in reading.pages()] == ["one\u2028two"]
    assert artifacts.keys(f"{REVISION}/ocr-f1/") == [f"{REVISION}/ocr-f1/pages.jsonl"]


def test_force_forgets_other_runs_but_not_its_own_pages(artifacts: Artifacts) -> None:
    reading = artifacts.reading(REVISION, "f1")
    reading.begin("monday", forget=False)
    reading.write_group([page_result(0)])
    reading.begin("tuesday", forget=False)
    assert reading.next_page_index() == 1
    reading.begin("wednesday", forget=True)
    assert reading.next_page_index() == 0
    reading.write_group([page_result(0)])
    reading.begin("wednesday", forget=True)
    assert reading.next_page_index() == 1


def test_other_settings_never_reuse_a_reading(artifacts: Artifacts) -> None:
    artifacts.reading(REVISION, "f1").complete([page_result(0)])
    assert not artifacts.reading(REVISION, "f2").is_complete()


def test_progress_is_kept(artifacts: Artifacts) -> None:
    reading = artifacts.reading(REVISION, "f1")
    assert reading.read_progress() is None
    progress = ReadingProgress(page_number=3, page_count=20, status="ok", engine="rapidocr", duration_s=2.5)
    reading.write_progress(progress)
    assert reading.read_progress() == progress


def test_every_key_has_a_manifest(store: ObjectStore, settings: Settings) -> None:
    manifests = Manifests(store, settings.artifact_bucket)
    keys = ["a.pdf", "a.pdf/b.pdf", "ä/手册 1.pdf", "../../x", "k" * 1024]
    for key in keys:
        assert manifests.read("manuals", key) == Manifest(bucket="manuals", key=key)
        manifests.write(Manifest(bucket="manuals", key=key, title=key[:5]))
    assert manifests.read("manuals", "ä/手册 1.pdf").title == "ä/手册 "
    assert sorted(manifest.key for manifest in manifests.all("manuals")) == sorted(keys)
    assert list(manifests.all("other")) == []


def attempt(run_id: str, status: JobStatus) -> Attempt:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Attempt(run_id=run_id, at=at, status=status, fingerprints=FINGERPRINTS)


def test_history_keeps_what_happened_and_is_bounded() -> None:
    manifest = Manifest(bucket="b", key="k")
    for number in range(30):
        manifest = manifest.after(attempt(f"run-{number}", JobStatus.QUARANTINED))
    manifest = manifest.after(attempt("nothing new", JobStatus.UNCHANGED))
    assert [item.run_id for item in manifest.history] == [f"run-{number}" for number in range(10, 30)]
    assert manifest.last_attempt is not None
    assert manifest.last_attempt.run_id == "nothing new"
