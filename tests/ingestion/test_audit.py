"""Deleting sources and finding drift, with a real object store and a real index."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from ingestion.audit import DriftKind, audit
from ingestion.deletion import delete_source
from ingestion.errors import AuditRefused, ObjectMissing, ServiceUnavailable, SourceStillThere
from ingestion.job import JobStatus, SourceRef
from ingestion.listing import list_sources
from ingestion.manifest import Manifest
from ingestion.pipeline import ingest
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from knowledge_base.census import ChunkSet, take_census
from knowledge_base.payload import LOADING_SINCE, SourceRevision
from knowledge_base.store import KnowledgeBase
from tests.ingestion.pages import text_pdf
from tests.knowledge_base.builders import Loader, make_chunks

TEXTS = {
    "pump.pdf": "Close the red valve before the pump is opened for service.",
    "drill.pdf": "The drill must be cooled with water while it is running.",
    "saw.pdf": "Wear gloves when the blade of the saw is exchanged.",
}


@pytest.fixture
def workspace(settings: Settings) -> Iterator[Workspace]:
    with Workspace(settings) as opened:
        opened.ensure_buckets()
        for key, text in TEXTS.items():
            upload(opened, key, text)
        ingest_all(opened)
        yield opened


def upload(workspace: Workspace, key: str, text: str) -> None:
    file = io.BytesIO(text_pdf(text))
    workspace.store.upload(workspace.settings.source_bucket, key, file, content_type="application/pdf")


def ingest_all(workspace: Workspace) -> None:
    jobs = ingest(workspace, list_sources(workspace.store, workspace.settings.source_bucket), run_id="first")
    assert {job.status for job in jobs} <= {JobStatus.PUBLISHED, JobStatus.UNCHANGED}


def uri(workspace: Workspace, key: str) -> str:
    return f"s3://{workspace.settings.source_bucket}/{key}"


def count(workspace: Workspace, key: str) -> int:
    with workspace.open_knowledge_base() as knowledge_base:
        return knowledge_base.count(uri(workspace, key))


def found(workspace: Workspace, *, fix: bool = False, force: bool = False) -> list[tuple[str, str, bool]]:
    report = audit(workspace, run_id="audit", fix=fix, force=force)
    start = uri(workspace, "")
    return [(each.kind.value, each.source.removeprefix(start), each.is_fixed) for each in report.drift]


def remove(workspace: Workspace, key: str) -> None:
    workspace.store.remove(workspace.settings.source_bucket, key)


def test_what_is_as_it_should_be_is_clean(workspace: Workspace) -> None:
    report = audit(workspace, run_id="audit")
    assert (report.object_count, report.published_count, report.point_count) == (3, 3, 3)
    assert report.is_clean
    assert report.lines() == ["3 objects, 3 published, 3 points: no drift"]


def test_deleted_changed_new_and_renamed_objects_are_found(workspace: Workspace) -> None:
    remove(workspace, "saw.pdf")
    upload(workspace, "band-saw.pdf", TEXTS["saw.pdf"])
    upload(workspace, "pump.pdf", "Close the blue valve before the pump is opened for service.")
    assert found(workspace) == [
        ("new", "band-saw.pdf", False),
        ("stale", "pump.pdf", False),
        ("deleted", "saw.pdf", False),
    ]
    assert count(workspace, "saw.pdf") == 1
    assert ("deleted", "saw.pdf", True) in found(workspace, fix=True)
    assert count(workspace, "saw.pdf") == 0
    manifest = workspace.manifests.read(workspace.settings.source_bucket, "saw.pdf")
    assert (manifest.status, manifest.published) == ("deleted", None)
    assert [attempt.status.value for attempt in manifest.history] == ["published", "deleted"]
    ingest_all(workspace)
    assert found(workspace) == []
    assert count(workspace, "band-saw.pdf") == 1


def test_points_that_are_lost_are_loaded_again_and_strays_go(workspace: Workspace) -> None:
    chunks = make_chunks("stray one", "stray two")
    load = Loader(workspace.embedder, workspace.sparse_encoder)
    with workspace.open_knowledge_base() as knowledge_base:
        knowledge_base.delete_source(uri(workspace, "drill.pdf"))
        load(knowledge_base, stray(uri(workspace, "never.pdf")), chunks)
    assert found(workspace) == [("missing", "drill.pdf", False), ("orphaned", "never.pdf", False)]
    assert found(workspace, fix=True) == [("missing", "drill.pdf", True), ("orphaned", "never.pdf", True)]
    assert found(workspace) == []
    assert count(workspace, "drill.pdf") == 1


def test_another_buckets_points_are_left_alone(workspace: Workspace) -> None:
    load = Loader(workspace.embedder, workspace.sparse_encoder)
    with workspace.open_knowledge_base() as knowledge_base:
        load(knowledge_base, stray("s3://other-bucket/a.pdf"), make_chunks("elsewhere"))
    assert found(workspace, fix=True) == []
    with workspace.open_knowledge_base() as knowledge_base:
        assert knowledge_base.count("s3://other-bucket/a.pdf") == 1


def test_a_load_that_died_is_cleared_away_once_it_is_old(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Loader(workspace.embedder, workspace.sparse_encoder)
    with workspace.open_knowledge_base() as knowledge_base:
        monkeypatch.setattr(knowledge_base.client, "batch_update_points", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            load(knowledge_base, stray(uri(workspace, "pump.pdf")), make_chunks("half written"))
    assert found(workspace) == []
    old = (datetime.now(UTC) - timedelta(hours=7)).isoformat()
    with workspace.open_knowledge_base() as knowledge_base:
        from qdrant_client import models

        hidden = models.Filter(must_not=[models.IsEmptyCondition(is_empty=models.PayloadField(key=LOADING_SINCE))])
        knowledge_base.client.set_payload("manuals", {LOADING_SINCE: old}, points=hidden)
    assert found(workspace) == [("unfinished", "pump.pdf", False)]
    assert found(workspace, fix=True) == [("unfinished", "pump.pdf", True)]
    assert found(workspace) == []
    assert count(workspace, "pump.pdf") == 1


def test_an_emptied_bucket_does_not_empty_the_knowledge_base(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingestion.audit.LEAST_SUSPICIOUS_COUNT", 2)
    remove(workspace, "saw.pdf")
    remove(workspace, "pump.pdf")
    with pytest.raises(AuditRefused, match="2 of 3 published sources have no object in s3://manuals-"):
        audit(workspace, run_id="audit", fix=True)
    assert count(workspace, "saw.pdf") == 1
    assert found(workspace, fix=True, force=True) == [("deleted", "pump.pdf", True), ("deleted", "saw.pdf", True)]


def test_what_cannot_be_fixed_does_not_stop_the_others(workspace: Workspace) -> None:
    bucket = workspace.settings.artifact_bucket
    published = workspace.manifests.read(workspace.settings.source_bucket, "drill.pdf").published
    assert published is not None
    with workspace.open_knowledge_base() as knowledge_base:
        for key in ("drill.pdf", "pump.pdf"):
            knowledge_base.delete_source(uri(workspace, key))
    for item in list(workspace.store.list(bucket, f"{published.revision}/")):
        workspace.store.remove(bucket, item.key)
    report = audit(workspace, run_id="audit", fix=True)
    assert [(each.kind, each.is_fixed) for each in report.drift] == [
        (DriftKind.MISSING, False),
        (DriftKind.MISSING, True),
    ]
    assert "ObjectMissing" in str(report.drift[0].error)
    assert not report.is_clean


def test_a_source_is_deleted_with_its_object_or_after_it(workspace: Workspace) -> None:
    bucket = workspace.settings.source_bucket
    with pytest.raises(SourceStillThere, match="still in the bucket"):
        delete_source(workspace, bucket, "pump.pdf", run_id="r")
    assert count(workspace, "pump.pdf") == 1
    assert delete_source(workspace, bucket, "pump.pdf", run_id="r", with_object=True) == 1
    assert not workspace.store.exists(bucket, "pump.pdf")
    remove(workspace, "saw.pdf")
    assert delete_source(workspace, bucket, "saw.pdf", run_id="r") == 1
    assert delete_source(workspace, bucket, "saw.pdf", run_id="r") == 0
    with pytest.raises(ObjectMissing):
        delete_source(workspace, bucket, "unknown.pdf", run_id="r")
    assert found(workspace) == []


def test_what_was_deleted_can_come_back(workspace: Workspace) -> None:
    delete_source(workspace, workspace.settings.source_bucket, "pump.pdf", run_id="r", with_object=True)
    upload(workspace, "pump.pdf", TEXTS["pump.pdf"])
    assert found(workspace) == [("new", "pump.pdf", False)]
    ingest_all(workspace)
    assert found(workspace) == []
    assert count(workspace, "pump.pdf") == 1


def test_a_census_counts_shown_and_hidden_points_by_chunk_set() -> None:
    one = {"metadata": {"source": "s", "revision": "r", "fingerprint": "f", "ingested_at": "2026-01-02T00:00:00+00:00"}}
    since = "2026-01-01T00:00:00+00:00"
    assert take_census([one, {**one, LOADING_SINCE: since}, one]) == [
        ChunkSet(
            source="s", revision="r", fingerprint="f", shown_count=2, hidden_count=1,
            hidden_since=datetime(2026, 1, 1, tzinfo=UTC), ingested_at=datetime(2026, 1, 2, tzinfo=UTC),
        )
    ]  # fmt: skip
    assert take_census([]) == []


def test_what_is_being_published_while_the_audit_runs_is_left_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # its points are switched, its manifest not yet written
    load = Loader(workspace.embedder, workspace.sparse_encoder)
    with workspace.open_knowledge_base() as knowledge_base:
        load(knowledge_base, stray(uri(workspace, "young.pdf"), datetime.now(UTC)), make_chunks("just loaded"))
    assert found(workspace, fix=True) == []
    assert count(workspace, "young.pdf") == 1

    # published after the points were counted, and its object put there after the objects were listed
    census = KnowledgeBase.census

    def counted_too_early(self: KnowledgeBase, **arguments: str) -> list[ChunkSet]:
        rows = census(self, **arguments)
        upload(workspace, "late.pdf", "A machine that came late.")
        return rows

    ingested = False
    all_manifests = workspace.manifests.all

    def with_ingest(bucket: str | None = None) -> Iterator[Manifest]:
        nonlocal ingested
        if not ingested:
            ingested = True
            ingest_all(workspace)
        return all_manifests(bucket)

    with monkeypatch.context() as patch:
        patch.setattr(KnowledgeBase, "census", counted_too_early)
        patch.setattr(workspace.manifests, "all", with_ingest)
        assert found(workspace, fix=True) == []
    assert count(workspace, "late.pdf") == 1


def test_a_revision_published_before_the_fix_is_not_replaced_by_the_one_before_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workspace.open_knowledge_base() as knowledge_base:
        knowledge_base.delete_source(uri(workspace, "pump.pdf"))

    def list_and_publish(*_: object) -> list[SourceRef]:
        listed = list_of(workspace)
        upload(workspace, "pump.pdf", "Quite another pump.")
        ingest_all(workspace)
        return listed

    with monkeypatch.context() as patch:
        patch.setattr("ingestion.audit.list_sources", list_and_publish)
        assert found(workspace, fix=True) == [("missing", "pump.pdf", True)]
    assert found(workspace) == []


def test_an_object_that_is_back_when_its_points_would_go_keeps_them(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [source for source in list_of(workspace) if source.key != "saw.pdf"]
    monkeypatch.setattr("ingestion.audit.list_sources", lambda *_: listed)
    assert found(workspace, fix=True) == [("deleted", "saw.pdf", True)]
    assert count(workspace, "saw.pdf") == 1
    assert workspace.manifests.read(workspace.settings.source_bucket, "saw.pdf").status == "published"


def test_the_same_bytes_put_there_anew_are_not_stale_after_the_next_run(workspace: Workspace) -> None:
    bucket = workspace.settings.source_bucket
    manifest = workspace.manifests.read(bucket, "pump.pdf")
    assert manifest.published is not None
    other_upload = manifest.published.model_copy(update={"etag": "0123-2"})
    workspace.manifests.write(manifest.model_copy(update={"published": other_upload}))
    assert found(workspace) == [("stale", "pump.pdf", False)]
    ingest_all(workspace)
    assert found(workspace) == []


def test_an_outage_is_an_outage_and_no_drift(workspace: Workspace) -> None:
    away = workspace.settings.model_copy(update={"qdrant_url": "http://127.0.0.1:1"})
    with Workspace(away) as unreachable, pytest.raises(ServiceUnavailable, match="knowledge base is unavailable"):
        audit(unreachable, run_id="audit", fix=True)


def list_of(workspace: Workspace) -> list[SourceRef]:
    return list_sources(workspace.store, workspace.settings.source_bucket)


def stray(source: str, ingested_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> SourceRevision:
    return SourceRevision(source=source, revision="d" * 64, fingerprint="f1", title="Stray", ingested_at=ingested_at)
