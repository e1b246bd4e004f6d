"""Which documents a run is about, how they are shared out, and what is tried again."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

HOUR_5 = datetime(2026, 3, 1, 5, tzinfo=UTC)
HOUR_6 = datetime(2026, 3, 1, 6, tzinfo=UTC)


def context(run_type: str, *, last_success: datetime | None = None, **params: Any) -> Any:
    return {
        "params": {"keys": [], "prefix": "", **params},
        "dag_run": SimpleNamespace(run_type=run_type, run_id="run-1"),
        "data_interval_start": HOUR_5,
        "data_interval_end": HOUR_6,
        "prev_data_interval_end_success": last_success,
    }


def test_a_backfill_run_takes_exactly_its_interval() -> None:
    from ocr2kb_operators import selection

    last_success = datetime(2026, 2, 1, tzinfo=UTC)
    assert selection(context("backfill", last_success=last_success)) == {
        "prefix": "",
        "modified_from": HOUR_5,
        "modified_to": HOUR_6,
    }


@pytest.mark.parametrize(
    ("last_success", "start"),
    [
        (None, HOUR_5),
        (HOUR_5, HOUR_5),
        (datetime(2026, 2, 28, 22, tzinfo=UTC), datetime(2026, 2, 28, 22, tzinfo=UTC)),
        (datetime(2026, 3, 2, tzinfo=UTC), HOUR_5),
    ],
    ids=["first run", "no gap", "seven hours missed", "a later run came first"],
)
def test_a_scheduled_run_makes_up_for_the_time_since_the_last_success(
    last_success: datetime | None, start: datetime
) -> None:
    from ocr2kb_operators import selection

    found = selection(context("scheduled", last_success=last_success, prefix="pumps/"))
    assert found == {"prefix": "pumps/", "modified_from": start, "modified_to": HOUR_6}


def test_a_manual_run_takes_the_whole_bucket_or_what_its_parameters_say() -> None:
    from ocr2kb_operators import selection

    assert selection(context("manual")) == {"prefix": "", "modified_from": None, "modified_to": None}
    assert selection(context("manual", prefix="pumps/", modified_from="2026-03-01T07:00:00+02:00")) == {
        "prefix": "pumps/",
        "modified_from": HOUR_5,
        "modified_to": None,
    }
    assert selection(context("manual", keys=["b.pdf", "a.pdf"], prefix="ignored/")) == {"keys": ["b.pdf", "a.pdf"]}


def test_a_time_without_an_offset_is_utc_and_one_that_is_none_is_refused_by_name() -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from ocr2kb_operators import selection

    assert selection(context("manual", modified_to="2026-03-01T06:00:00"))["modified_to"] == HOUR_6
    with pytest.raises(AirflowFailException, match=r"modified_from .*'yesterday'"):
        selection(context("manual", modified_from="yesterday"))


@pytest.mark.parametrize(
    ("job_count", "batch_count", "largest"),
    [(0, 0, 0), (1, 1, 1), (1000, 1000, 1), (1001, 501, 2), (5000, 1000, 5), (123_456, 996, 124)],
)
def test_every_job_is_in_one_batch_and_airflows_limit_holds(job_count: int, batch_count: int, largest: int) -> None:
    from ocr2kb_operators import batches

    jobs = [{"number": number} for number in range(job_count)]
    shared_out = batches(jobs, 1000)
    assert len(shared_out) == batch_count <= 1024
    assert max(map(len, shared_out), default=0) == largest
    assert [job for batch in shared_out for job in batch] == jobs


def test_only_what_may_pass_is_tried_again() -> None:
    from airflow.sdk import RetryAction
    from airflow.sdk.exceptions import AirflowTaskTimeout
    from ocr2kb_operators import OUTAGE_RETRIES

    from ingestion.errors import AccessRefused, ObjectMissing, ServiceUnavailable
    from ocr2_core.errors import EngineError, SourceRefused

    def action(error: BaseException) -> RetryAction:
        return OUTAGE_RETRIES.evaluate(error, try_number=1, max_tries=5).action

    for passing in (
        ServiceUnavailable("object store", "connection refused.", "Start it."),
        ConnectionResetError("reset"),
        TimeoutError("slow"),
        AirflowTaskTimeout("12 hours"),
    ):
        assert action(passing) is RetryAction.RETRY, passing
    for lasting in (
        SourceRefused("encrypted", "It has a password.", "Remove it."),
        ObjectMissing("manuals", "a.pdf"),
        AccessRefused("wrong secret"),
        EngineError("the model is missing"),
        KeyError("a fault of the program"),
    ):
        assert action(lasting) is RetryAction.FAIL, lasting


def test_a_task_is_named_after_its_documents() -> None:
    from ocr2kb_operators import StageOperator

    def name(*keys: str) -> str:
        return StageOperator(task_id="read", stage="read", jobs=[{"source": {"key": key}} for key in keys]).documents

    assert name("pumps/p1.pdf") == "pumps/p1.pdf"
    assert name("a.pdf", "b.pdf", "c.pdf") == "a.pdf and 2 more"
    assert name() == "nothing"
