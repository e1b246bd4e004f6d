"""The five stages on a real scanned manual, a real object store, real models and a real index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pymupdf
import pytest

from ingestion.errors import ObjectMissing, PathRefused
from ingestion.job import Job, JobOptions, JobStatus, SourceRef
from ingestion.listing import list_sources
from ingestion.local_sources import find_sources
from ingestion.pipeline import ingest, run_stage
from ingestion.plan import plan_jobs
from ingestion.report import summarise
from ingestion.services.object_gateway import S3Access
from ingestion.settings import Settings
from ingestion.stages import STAGES
from ingestion.workspace import Workspace
from knowledge_base.search import search
from ocr2_core.ledger import LedgerCounts, PageResult
from tests.ingestion.pages import text_pdf

SAMPLES = Path(__file__).parents[2] / "samples"
GUIDE = SAMPLES / "tool-setup-guide.pdf"


@pytest.fixture(scope="module")
def shared(s3_access: S3Access, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """One workspace with the guide ingested, its pages stored two a group."""
    settings = Settings.load(
        state_dir=tmp_path_factory.mktemp("stages"),
        s3_endpoint=s3_access.endpoint,
        s3_access_key=s3_access.access_key,
        s3_secret_key=s3_access.secret_key,
        source_bucket="stages-manuals",
        artifact_bucket="stages-artifacts",
        page_group_size=2,
    )
    with Workspace(settings) as workspace:
        workspace.ensure_buckets()
        with GUIDE.open("rb") as file:
            workspace.store.upload(settings.source_bucket, "guide.pdf", file, content_type="application/pdf")
        yield workspace


@pytest.fixture(scope="module")
def published(shared: Workspace) -> Job:
    """The guide, after a reading that was cut off on page 4 and taken up again."""
    [job] = plan_jobs(shared, guide_source(shared), "first", JobOptions())
    job = run_stage("fetch", shared, job)
    assert job.page_count == 6
    assert job.revision == "69d41fb09fd13f556ef0a17b3dbe16641f9a47c824d7030dfb4a4dfc7af549a9"

    class CutOffError(Exception):
        pass

    def cut_off(result: PageResult, page_count: int) -> None:
        assert page_count == 6
        if result.page.page_number == 4:
            raise CutOffError

    with pytest.raises(CutOffError):
        run_stage("read", shared, job, cut_off)
    read_again: list[int] = []
    job = run_stage("read", shared, job, lambda result, _: read_again.append(result.page.page_number))
    assert read_again == [5, 6]
    assert job.counts == LedgerCounts(page_count=6, ok=6)
    for name in ("recover", "chunk", "load"):
        job = run_stage(name, shared, job)
    return job


def guide_source(workspace: Workspace) -> list[SourceRef]:
    return list_sources(workspace.store, workspace.settings.source_bucket, keys=["guide.pdf"])


def point_ids(workspace: Workspace, key: str = "guide.pdf") -> set[str]:
    with workspace.open_knowledge_base() as knowledge_base:
        return {str(point_id) for point_id in knowledge_base.point_ids(f"s3://stages-manuals/{key}")}


def first_hit(workspace: Workspace, question: str) -> tuple[str, list[int], list[str]]:
    with workspace.open_knowledge_base() as knowledge_base:
        hit = search(knowledge_base, workspace.embedder, workspace.sparse_encoder, question, k=1)[0]
    return hit.source, hit.pages, hit.section_path


def test_a_published_manual_answers_with_page_and_section(shared: Workspace, published: Job) -> None:
    assert published.status is JobStatus.PUBLISHED
    assert published.title == "Guide for Debian Maintainers"
    assert published.heading_count == 13
    source, pages, section = first_hit(shared, "How can package downloads be cached locally to save bandwidth?")
    assert source == "s3://stages-manuals/guide.pdf"
    assert 6 in pages
    assert section[-1] == "3.8 HTTP proxy"
    manifest = shared.manifests.read("stages-manuals", "guide.pdf")
    assert manifest.status == "published"
    assert manifest.published is not None
    assert manifest.published.chunk_count == published.chunk_count == len(point_ids(shared))


@pytest.mark.usefixtures("published")
def test_ingesting_again_changes_nothing(shared: Workspace) -> None:
    before = point_ids(shared)
    calls: list[int] = []
    sources = guide_source(shared)
    [job] = ingest(shared, sources, run_id="again", on_page=lambda result, _: calls.append(result.page.page_index))
    assert job.status is JobStatus.UNCHANGED
    assert calls == []
    assert point_ids(shared) == before
    summary = summarise(shared.manifests, sources, "again")
    assert summary.lines()[0] == "1 documents: 1 unchanged"
    assert summary.exit_code == 0


def test_the_same_bytes_under_another_key_are_read_once(shared: Workspace, published: Job) -> None:
    with GUIDE.open("rb") as file:
        shared.store.upload("stages-manuals", "copies/guide.pdf", file, content_type="application/pdf")
    calls: list[int] = []
    sources = list_sources(shared.store, "stages-manuals", keys=["copies/guide.pdf"])
    [job] = ingest(shared, sources, run_id="copy", on_page=lambda result, _: calls.append(result.page.page_index))
    assert job.status is JobStatus.PUBLISHED
    assert calls == []
    assert len(point_ids(shared, "copies/guide.pdf")) == published.chunk_count
    assert len(point_ids(shared)) == published.chunk_count


def test_a_changed_setting_redoes_only_what_it_touches(shared: Workspace, published: Job) -> None:
    calls: list[int] = []
    smaller = Workspace(shared.settings.model_copy(update={"max_chunk_tokens": 64}))
    [job] = ingest(
        smaller, guide_source(shared), run_id="smaller", on_page=lambda result, _: calls.append(result.page.page_index)
    )
    assert job.status is JobStatus.PUBLISHED
    assert calls == []
    assert job.fingerprints.ocr == published.fingerprints.ocr
    assert job.fingerprints.structure == published.fingerprints.structure
    assert job.fingerprints.chunks != published.fingerprints.chunks
    assert job.chunk_count is not None
    assert published.chunk_count is not None
    assert job.chunk_count > published.chunk_count
    assert len(point_ids(shared)) == job.chunk_count
    [back] = ingest(shared, guide_source(shared), run_id="back")
    assert back.status is JobStatus.PUBLISHED
    assert len(point_ids(shared)) == published.chunk_count


def test_a_changed_manual_replaces_its_chunks(shared: Workspace) -> None:
    shared.store.put_bytes("stages-manuals", "changing.pdf", text_pdf("The valve opens at seven bar."))
    sources = list_sources(shared.store, "stages-manuals", keys=["changing.pdf"])
    assert ingest(shared, sources, run_id="one")[0].status is JobStatus.PUBLISHED
    old = point_ids(shared, "changing.pdf")
    shared.store.put_bytes("stages-manuals", "changing.pdf", text_pdf("The valve opens at nine bar."))
    sources = list_sources(shared.store, "stages-manuals", keys=["changing.pdf"])
    assert ingest(shared, sources, run_id="two")[0].status is JobStatus.PUBLISHED
    new = point_ids(shared, "changing.pdf")
    assert len(new) == 1
    assert old.isdisjoint(new)


def test_a_damaged_file_is_quarantined_and_the_old_revision_stays(shared: Workspace) -> None:
    shared.store.put_bytes("stages-manuals", "valve.pdf", text_pdf("The valve opens at seven bar."))
    sources = list_sources(shared.store, "stages-manuals", keys=["valve.pdf"])
    ingest(shared, sources, run_id="good")
    before = point_ids(shared, "valve.pdf")
    shared.store.put_bytes("stages-manuals", "valve.pdf", b"%PDF-1.7\nthis is no more than a beginning")
    sources = list_sources(shared.store, "stages-manuals", keys=["valve.pdf"])
    [job] = ingest(shared, sources, run_id="bad")
    assert job.status is JobStatus.QUARANTINED
    assert job.reason is not None
    assert (job.reason.stage, job.reason.code) == ("fetch", "damaged")
    manifest = shared.manifests.read("stages-manuals", "valve.pdf")
    assert manifest.status == "quarantined"
    assert manifest.published is not None
    assert point_ids(shared, "valve.pdf") == before
    summary = summarise(shared.manifests, sources, "bad")
    assert summary.exit_code == 4
    assert summary.failure() == "1 of 1 documents are quarantined: s3://stages-manuals/valve.pdf"


def test_one_bad_document_leaves_the_others_going(shared: Workspace) -> None:
    shared.store.put_bytes("stages-manuals", "many/1-empty.pdf", b"")
    shared.store.put_bytes("stages-manuals", "many/2-good.pdf", text_pdf("Grease the bearing every year."))
    shared.store.put_bytes("stages-manuals", "many/3-gone.pdf", b"x")
    sources = list_sources(shared.store, "stages-manuals", prefix="many/")
    shared.store.remove("stages-manuals", "many/3-gone.pdf")
    ingest(shared, sources, run_id="many")
    summary = summarise(shared.manifests, sources, "many")
    assert [(item.status, item.reason.code if item.reason else None) for item in summary.documents] == [
        ("quarantined", "empty"),
        ("published", None),
        ("quarantined", "missing"),
    ]
    assert summary.exit_code == 3
    assert summary.failure() is None
    assert summary.failure(fail_on_quarantine=True) is not None


@pytest.mark.usefixtures("published")
def test_a_document_of_another_run_is_unaccounted_for(shared: Workspace) -> None:
    summary = summarise(shared.manifests, guide_source(shared), "a run that never was")
    assert summary.failure() == "1 of 1 documents did not end: s3://stages-manuals/guide.pdf"
    assert summary.exit_code == 3


def test_blank_pages_alone_are_not_published(shared: Workspace) -> None:
    pdf = pymupdf.open()
    pdf.new_page()
    pdf.new_page()
    shared.store.put_bytes("stages-manuals", "blank.pdf", pdf.tobytes())
    [job] = ingest(shared, list_sources(shared.store, "stages-manuals", keys=["blank.pdf"]), run_id="blank")
    assert job.status is JobStatus.QUARANTINED
    assert job.reason is not None
    assert job.reason.code == "no_text"
    assert job.counts == LedgerCounts(page_count=2, blank=2)


def test_a_replaced_object_is_not_read_as_the_old_one(shared: Workspace) -> None:
    shared.store.put_bytes("stages-manuals", "moving.pdf", text_pdf("Before."))
    [job] = plan_jobs(shared, list_sources(shared.store, "stages-manuals", keys=["moving.pdf"]), "moving", JobOptions())
    job = run_stage("fetch", shared, job)
    shared.store.put_bytes("stages-manuals", "moving.pdf", text_pdf("After."))
    job = run_stage("read", shared, job)
    assert job.reason is not None
    assert job.reason.code == "changed_during_run"
    for name in list(STAGES)[2:]:
        assert run_stage(name, shared, job) == job


def test_addresses_of_people(shared: Workspace, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "Ölpumpe 1.PDF").write_bytes(text_pdf("Oil."))
    (tmp_path / "notes.txt").write_text("no manual")
    found = find_sources(shared, [str(tmp_path), "s3://stages-manuals/sub/"])
    assert [source.uri for source in found] == ["s3://stages-manuals/sub/Ölpumpe 1.PDF"]
    before = list(shared.store.list("stages-manuals", "sub/"))
    find_sources(shared, [str(tmp_path)])
    assert list(shared.store.list("stages-manuals", "sub/")) == before
    with pytest.raises(ObjectMissing):
        find_sources(shared, ["s3://stages-manuals/nothing-here/"])


def test_two_files_of_one_name_are_not_taken_for_one_manual(shared: Workspace, tmp_path: Path) -> None:
    for folder, text in (("pumps", "Oil."), ("fans", "Grease.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "clash.pdf").write_bytes(text_pdf(text))
    both = [str(tmp_path / "pumps" / "clash.pdf"), str(tmp_path / "fans" / "clash.pdf")]
    with pytest.raises(PathRefused, match=r"would both become the object 'clash\.pdf'"):
        find_sources(shared, both)
    assert not shared.store.exists("stages-manuals", "clash.pdf")
    assert [source.key for source in find_sources(shared, [both[0], both[0]])] == ["clash.pdf"]
    keys = [source.key for source in find_sources(shared, [str(tmp_path)])]
    assert keys == ["fans/clash.pdf", "pumps/clash.pdf"]
