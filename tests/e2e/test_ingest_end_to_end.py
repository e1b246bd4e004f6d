"""Scanned manuals through the real services: S3 endpoint, Airflow's scheduler, OCR, structure, Qdrant, search.

The tests build on each other's documents, in this order; each asserts only on what it says.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.services import FinishedRun, RunningServices, pages_of, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
GUIDE = "tool-setup-guide.pdf"
UPS = "ups/user manual ü.pdf"
DAMAGED = "damaged.pdf"
AUDIT_DAG_ID = "audit_knowledge_base"
UPS_FIRST_PAGE, UPS_LAST_PAGE = 5, 8


def sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def questions() -> list[tuple[str, str, int]]:
    """Question, object key and page number, for the pages that are uploaded here."""
    found = []
    for line in (SAMPLES / "questions.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["source"] == GUIDE:
            found.append((entry["question"], GUIDE, entry["page_number"]))
        elif UPS_FIRST_PAGE <= entry["page_number"] <= UPS_LAST_PAGE:
            found.append((entry["question"], UPS, entry["page_number"] - UPS_FIRST_PAGE + 1))
    return found


@pytest.fixture(scope="module")
def first_run(services: RunningServices) -> FinishedRun:
    """Two good manuals and a damaged one, by a manual run without parameters."""
    services.upload(GUIDE, sample(GUIDE))
    services.upload(UPS, pages_of(sample("ups-user-manual.pdf"), UPS_FIRST_PAGE, UPS_LAST_PAGE))
    services.upload(DAMAGED, b"%PDF-1.7\n" + os.urandom(2000))
    return services.run()


def test_good_manuals_are_published_and_the_run_is_green(services: RunningServices, first_run: FinishedRun) -> None:
    assert first_run.state == "success"
    assert first_run.documents() == sorted([GUIDE, UPS, DAMAGED])
    for key, page_count in ((GUIDE, 6), (UPS, UPS_LAST_PAGE - UPS_FIRST_PAGE + 1)):
        published = services.manifest(key).published
        assert published is not None
        assert published.status.value == "published"
        assert published.counts.page_count == published.counts.ok + published.counts.repaired == page_count
        assert len(services.points(key)) == published.chunk_count > 0  # type: ignore[arg-type]


@pytest.mark.usefixtures("first_run")
@pytest.mark.parametrize(("question", "key", "page_number"), questions())
def test_the_first_hit_is_on_the_right_page(
    services: RunningServices, question: str, key: str, page_number: int
) -> None:
    hit = services.search(question)[0]
    assert (hit.source, page_number in hit.pages) == (services.uri(key), True), f"pages {hit.pages} of {hit.source}"
    assert hit.section_path
    boxes = [box for box in hit.boxes if box.page_number == page_number]
    assert boxes
    for box in boxes:
        x0, y0, x1, y1 = box.bbox_norm
        assert 0 <= x0 < x1 <= 999
        assert 0 <= y0 < y1 <= 999


def test_a_damaged_manual_is_quarantined_with_its_reason_and_nothing_of_it_is_searchable(
    services: RunningServices, first_run: FinishedRun
) -> None:
    attempt = services.manifest(DAMAGED).last_attempt
    assert attempt is not None
    assert attempt.run_id == first_run.run_id
    assert attempt.status.value == "quarantined"
    assert attempt.reason is not None
    assert (attempt.reason.stage, attempt.reason.code) == ("fetch", "damaged")
    assert services.manifest(DAMAGED).published is None
    assert services.points(DAMAGED) == []
    report = services.log(first_run.run_id, "report")
    assert "2 published, 1 quarantined" in report
    assert attempt.reason.cause in report


def test_the_log_of_reading_has_a_line_for_each_page(services: RunningServices, first_run: FinishedRun) -> None:
    (task,) = [
        task for task in first_run.tasks if task["task_id"] == "document.read" and task["rendered_map_index"] == GUIDE
    ]
    assert task["pool"] == "gpu"
    log = services.log(first_run.run_id, "document.read", map_index=task["map_index"])
    for page_number in range(1, 7):
        assert f"{GUIDE} page {page_number}/6: ok" in log


def test_tasks_pass_on_keys_and_counts_only(services: RunningServices, first_run: FinishedRun) -> None:
    for task in first_run.tasks:
        if task["task_id"] == "document.chunk":
            value = services.access.airflow.xcom(
                "ingest_manuals", first_run.run_id, task["task_id"], map_index=task["map_index"]
            )
            assert len(json.dumps(value)) < 2500


@pytest.mark.usefixtures("first_run")
def test_no_log_holds_the_secret_key(services: RunningServices) -> None:
    state_dir = services.stack.state_dir
    logs = [*state_dir.glob("logs/*.log"), *state_dir.glob("airflow/logs/**/*.log")]
    assert len(logs) > 10
    secret = services.access.s3.secret_key.encode()
    assert [path.name for path in logs if secret in path.read_bytes()] == []


def test_running_again_changes_no_point(services: RunningServices, first_run: FinishedRun) -> None:
    before = {key: (services.points(key), services.manifest(key).published) for key in (GUIDE, UPS, DAMAGED)}
    again = services.run()
    assert again.state == "success"
    assert again.documents() == first_run.documents()
    assert {key: (services.points(key), services.manifest(key).published) for key in before} == before
    assert "2 unchanged, 1 quarantined" in services.log(again.run_id, "report")


@pytest.mark.usefixtures("first_run")
def test_a_run_of_nothing_but_quarantined_documents_is_red(services: RunningServices) -> None:
    run = services.run(keys=[DAMAGED])
    assert run.state == "failed"
    assert run.documents() == [DAMAGED]
    assert run.states("document.load") == ["success"]
    assert "1 of 1 documents are quarantined" in services.log(run.run_id, "report")


def test_a_key_that_is_not_there_makes_the_run_red_at_once(services: RunningServices) -> None:
    run = services.run(keys=["no/such/manual.pdf"])
    assert run.state == "failed"
    (listing,) = [task for task in run.tasks if task["task_id"] == "list_sources"]
    assert (listing["state"], listing["try_number"]) == ("failed", 1)


@pytest.mark.usefixtures("first_run")
def test_an_outage_is_waited_for(services: RunningServices) -> None:
    gateway = services.stack.gateway
    gateway.stop()
    try:
        run_id = services.trigger(keys=[GUIDE])
        waiting = wait_for(
            lambda: (task := services.task(run_id, "list_sources")) and task["state"] == "up_for_retry" and task,
            timeout_s=120,
        )
        assert waiting["try_number"] == 1
    finally:
        assert gateway.start() == services.access.s3
    run = services.finished(run_id)
    assert run.state == "success"
    (listing,) = [task for task in run.tasks if task["task_id"] == "list_sources"]
    assert listing["try_number"] == 2


@pytest.mark.usefixtures("first_run")
def test_a_changed_manual_replaces_its_chunks_with_none_left_over(services: RunningServices) -> None:
    old = services.manifest(GUIDE).published
    assert old is not None
    ups_points = services.points(UPS)
    changed = pages_of(sample(GUIDE), 1, 2)
    services.upload(GUIDE, changed)
    run = services.run(keys=[GUIDE])
    assert run.state == "success"
    new = services.manifest(GUIDE).published
    assert new is not None
    assert new.revision == hashlib.sha256(changed).hexdigest() != old.revision
    assert services.points(GUIDE, revision=old.revision) == 0
    assert services.points(GUIDE, revision=new.revision) == len(services.points(GUIDE)) == new.chunk_count  # type: ignore[arg-type]
    assert services.points(UPS) == ups_points
    assert all(max(hit.pages) <= 2 for hit in services.search("HTTP proxy cache", k=20) if hit.source.endswith(GUIDE))


def test_a_killed_reading_goes_on_where_it_was(services: RunningServices) -> None:
    key, data = "killed.pdf", pages_of(sample("ups-user-manual.pdf"), 9, 12)
    services.upload(key, data)
    run_id = services.trigger(keys=[key])
    groups_prefix = f"{hashlib.sha256(data).hexdigest()}/ocr-"

    def groups() -> dict[str, tuple[str, datetime]]:
        listed = services.workspace.store.list(services.workspace.settings.artifact_bucket, groups_prefix)
        return {item.key: (item.etag, item.last_modified) for item in listed if "/groups/" in item.key}

    kept = wait_for(lambda: len(found := groups()) >= 2 and found, timeout_s=300)
    reading = services.task(run_id, "document.read")
    assert reading is not None
    assert reading["state"] == "running"
    helpers = psutil.Process(reading["pid"]).children(recursive=True)
    os.kill(reading["pid"], signal.SIGKILL)
    assert psutil.wait_procs(helpers, timeout=60)[1] == []
    wait_for(lambda: (task := services.task(run_id, "document.read")) and task["state"] == "up_for_retry", timeout_s=60)
    survivors = groups()
    assert {name: survivors[name] for name in kept} == kept
    assert len(survivors) < 4, "the kill came too late to show anything"

    run = services.finished(run_id)
    assert run.state == "success"
    read_again = services.log(run_id, "document.read", map_index=0, try_number=2)
    pages = [number for number in range(1, 5) if f"{key} page {number}/4" in read_again]
    assert pages == list(range(len(survivors) + 1, 5))
    published = services.manifest(key).published
    assert published is not None
    assert published.counts.page_count == 4
    assert published.counts.failed == 0


@pytest.mark.usefixtures("first_run")
def test_a_backfill_takes_the_objects_modified_in_its_intervals(services: RunningServices) -> None:
    five = (datetime.now(UTC) - timedelta(days=1)).replace(hour=5, minute=0, second=0, microsecond=0)
    services.set_last_modified(UPS, five + timedelta(minutes=20))
    services.set_last_modified(DAMAGED, five + timedelta(hours=2))
    api = services.access.airflow
    backfill = api.create_backfill("ingest_manuals", five.isoformat(), (five + timedelta(hours=1)).isoformat())
    assert backfill["reprocess_behavior"] == "none"

    def made() -> list[dict[str, Any]]:
        return [run for run in api.runs("ingest_manuals") if run["run_type"] == "backfill"]

    runs = wait_for(lambda: len(found := made()) == 2 and found, timeout_s=60)
    listed = {}
    for run in runs:
        finished = services.finished(run["dag_run_id"])
        assert finished.state == "success"
        documents = finished.documents() if finished.states("document.fetch") != ["skipped"] else []
        listed[datetime.fromisoformat(run["data_interval_start"])] = documents
    assert listed == {five: [UPS], five + timedelta(hours=1): []}


@pytest.mark.usefixtures("first_run")
def test_the_audit_takes_away_what_was_deleted_and_leaves_the_rest(services: RunningServices) -> None:
    airflow = services.access.airflow
    airflow.unpause_when_parsed(AUDIT_DAG_ID, timeout_s=60)
    # unpausing starts the run of last night
    (scheduled,) = wait_for(lambda: airflow.runs(AUDIT_DAG_ID), timeout_s=60)
    assert services.finished(scheduled["dag_run_id"], AUDIT_DAG_ID).state == "success"
    kept = services.points(GUIDE)
    assert services.points(UPS)
    services.workspace.store.remove(services.bucket, UPS)
    run = services.finished(airflow.trigger(AUDIT_DAG_ID), AUDIT_DAG_ID)
    assert run.state == "success"
    assert airflow.xcom(AUDIT_DAG_ID, run.run_id, "audit", key="drift")["deleted"] == 1
    assert services.points(UPS) == []
    assert services.manifest(UPS).status == "deleted"
    assert services.points(GUIDE) == kept


@pytest.mark.usefixtures("first_run")
def test_an_audit_that_only_reports_is_red_while_there_is_something_to_mend(services: RunningServices) -> None:
    airflow = services.access.airflow
    with services.workspace.open_knowledge_base() as knowledge_base:
        knowledge_base.delete_source(services.uri(GUIDE))
    red = services.finished(airflow.trigger(AUDIT_DAG_ID, {"fix": False}), AUDIT_DAG_ID)
    assert red.state == "failed"
    assert services.points(GUIDE) == []
    mended = services.finished(airflow.trigger(AUDIT_DAG_ID), AUDIT_DAG_ID)
    assert mended.state == "success"
    published = services.manifest(GUIDE).published
    assert published is not None
    assert len(services.points(GUIDE)) == published.chunk_count  # type: ignore[arg-type]
