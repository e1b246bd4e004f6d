"""Operators over ingestion: they choose documents, run one stage, and settle the account of a run.

Only keys and small counts travel between tasks. Nothing heavy is imported before a task runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowFailException
from ocr2kb_connections import open_workspace

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ingestion.job import Job
    from ingestion.workspace import Workspace
    from ocr2_core.ledger import PageResult

JobRecord = dict[str, Any]
Batch = list[JobRecord]

# The value of a parameter that leaves a choice to the settings.
AS_IN_SETTINGS = "as in the settings"

# Runs that stand for an interval of time; all others take their documents from the run's parameters.
INTERVAL_RUN_TYPES = frozenset({"scheduled", "backfill"})

# An outage passes, and what a stage has finished is kept; a wrong file, right or setting stays wrong, and so does a
# fault of the program.
# A task that was killed raised nothing: Airflow retries it, and the stage goes on where it was.
OUTAGE_RETRIES = ExceptionRetryPolicy(
    rules=[
        RetryRule(
            exception=[
                "ingestion.errors.ServiceUnavailable",
                "airflow.sdk.exceptions.AirflowTaskTimeout",
                "builtins.ConnectionError",
                "builtins.TimeoutError",
            ],
            action=RetryAction.RETRY,
            reason="a service did not answer in time: finished work is kept, the rest is tried again",
        ),
    ],
    default=RetryAction.FAIL,
)


# What all tasks have in common; each DAG adds how often and how long.
TASK_DEFAULTS: dict[str, Any] = {
    "owner": "ocr2-kb",
    "retry_delay": timedelta(seconds=15),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
    "retry_policy": OUTAGE_RETRIES,
}


class ListSourcesOperator(BaseOperator):
    """Choose the documents of this run and return them as batches of jobs, one batch for each mapped task.

    A scheduled or backfill run takes the objects modified in its data interval. A scheduled run begins where the last
    successful one ended, so that hours in which the DAG was paused or its run failed are made up for. Any other run
    takes `keys`, or all objects under `prefix` that were modified from `modified_from` until before `modified_to`.

    A batch is one document, until there are more documents than `max_batch_count`, Airflow's limit for mapping.
    """

    def __init__(self, *, max_batch_count: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_batch_count = max_batch_count

    def execute(self, context: Context) -> list[Batch]:
        from ingestion.job import JobOptions
        from ingestion.listing import list_sources
        from ingestion.plan import plan_jobs

        params = context["params"]
        wanted = selection(context)
        options = JobOptions(
            force=params.get("force", False), engine=_choice(params, "engine"), ocr=_choice(params, "ocr")
        )
        with open_workspace() as workspace:
            sources = list_sources(workspace.store, workspace.settings.source_bucket, **wanted)
            asked = ", ".join(f"{name}={value}" for name, value in wanted.items() if value) or "the whole bucket"
            self.log.info("%d documents found for %s", len(sources), asked)
            limit = params.get("max_documents")
            if limit and len(sources) > limit:
                self.log.warning("max_documents=%d: %d documents are left out", limit, len(sources) - limit)
                sources = sources[:limit]
            jobs = plan_jobs(workspace, sources, context["run_id"], options) if sources else []
        return batches([_record(job) for job in jobs], self.max_batch_count)


class StageOperator(BaseOperator):
    """Run one stage on each job of a batch; a refused document is settled and does not fail the task.

    In a batch of several documents a failing one is logged and left out, so that the others go on; the report then
    finds it unaccounted for. An outage fails the task, to be retried.
    """

    template_fields: Sequence[str] = ("jobs",)

    def __init__(self, *, stage: str, jobs: Any, **kwargs: Any) -> None:
        super().__init__(map_index_template="{{ task.documents }}", **kwargs)
        self.stage = stage
        self.jobs = jobs

    @property
    def documents(self) -> str:
        """What the task is about, shown in the UI in place of a number."""
        keys = [record["source"]["key"] for record in self.jobs or []]
        return keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more" if keys else "nothing"

    def execute(self, context: Context) -> Batch:  # noqa: ARG002 (Airflow passes it by name)
        from ingestion.errors import ServiceUnavailable
        from ingestion.job import Job

        done: Batch = []
        failed: list[Exception] = []
        with open_workspace() as workspace:
            for record in self.jobs:
                job = Job.model_validate(record)
                try:
                    done.append(_record(self._run(workspace, job)))
                except ServiceUnavailable:
                    raise
                except Exception as error:
                    if len(self.jobs) == 1:
                        raise
                    self.log.exception("%s: %s failed", job.source.uri, self.stage)
                    failed.append(error)
        if failed and not done:
            raise failed[0]
        return done

    def _run(self, workspace: Workspace, job: Job) -> Job:
        from ingestion.pipeline import run_stage

        result = run_stage(self.stage, workspace, job, on_page=self._page_logger(job))
        if result.reason is not None:
            self.log.warning("%s is %s: %s", result.source.uri, result.status.value, result.reason)
        else:
            self.log.info("%s: %s done, %s", result.source.uri, self.stage, result.status.value)
        return result

    def _page_logger(self, job: Job) -> Callable[[PageResult, int], None]:
        def log_page(result: PageResult, page_count: int) -> None:
            row = result.ledger
            self.log.info(
                "%s page %d/%d: %s (%s, %.1f s, %d words)%s",
                job.source.key,
                row.page_index + 1,
                page_count,
                row.status.value,
                row.engine,
                row.duration_s,
                row.token_count,
                f" {row.reason}" if row.reason else "",
            )

        return log_page


class ReportOperator(BaseOperator):
    """Compare what was listed with what the manifests say of this run; fail where the account does not balance.

    Fails when a document has no outcome in this run (its task failed), when documents were listed and every one was
    quarantined, or, with the parameter `fail_on_quarantine`, when any was.
    """

    template_fields: Sequence[str] = ("listed",)

    def __init__(self, *, listed: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.listed = listed

    def execute(self, context: Context) -> dict[str, int]:
        from ingestion.job import SourceRef
        from ingestion.report import summarise

        if self.listed is None:
            raise AirflowFailException("The documents of this run could not be listed: see the log of list_sources.")
        sources = [SourceRef.model_validate(record["source"]) for batch in self.listed for record in batch]
        with open_workspace() as workspace:
            summary = summarise(workspace.manifests, sources, context["run_id"])
        for line in summary.lines():
            self.log.info("%s", line)
        counts = dict(Counter(document.status for document in summary.documents))
        # pushed before the verdict: a red run has an account too
        context["ti"].xcom_push(key="summary", value=counts)
        failure = summary.failure(fail_on_quarantine=bool(context["params"].get("fail_on_quarantine", False)))
        if failure is not None:
            raise AirflowFailException(failure)
        return counts


class AuditOperator(BaseOperator):
    """Compare objects, manifests and points, fix what needs no reading where the parameter `fix` says so, and fail
    when something could not be fixed. What a later ingest run will do (new and changed objects) fails nothing."""

    def execute(self, context: Context) -> dict[str, int]:
        from ingestion.audit import audit
        from ingestion.errors import AuditRefused

        params = context["params"]
        try:
            with open_workspace() as workspace:
                report = audit(
                    workspace,
                    run_id=context["run_id"],
                    fix=bool(params.get("fix", True)),
                    force=bool(params.get("force", False)),
                )
        except AuditRefused as error:
            raise AirflowFailException(str(error)) from error
        for line in report.lines():
            self.log.info("%s", line)
        counts = dict(Counter(each.kind.value for each in report.drift))
        context["ti"].xcom_push(key="drift", value=counts)
        left = [each for each in report.drift if each.kind.can_be_fixed and not each.is_fixed]
        if left:
            raise AirflowFailException(f"{len(left)} differences are left: see the log")
        return counts


class ReembedOperator(BaseOperator):
    """Fill a collection by another embedding model, compare search, and switch readers to it.

    The run's parameters: `model`, `max_chunk_tokens`, `check`, `most_loss`, `switch`. Fails when the switch is refused
    or a document could not be loaded; readers see the old collection then.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        from ingestion.errors import ReembeddingRefused
        from ingestion.reembedding import question_set, reembed, settings_for
        from ingestion.workspace import Workspace

        params = context["params"]
        with open_workspace() as workspace:
            settings = settings_for(workspace.settings, params["model"], params.get("max_chunk_tokens"))
            questions = question_set(workspace) if params.get("check", True) else []
            try:
                with Workspace(settings) as new:
                    report = reembed(
                        workspace,
                        new,
                        run_id=context["run_id"],
                        questions=questions,
                        most_loss=float(params.get("most_loss", 0.02)),
                        is_switching=bool(params.get("switch", True)),
                        on_source=lambda uri, number, count: self.log.info("%d/%d %s", number, count, uri),
                    )
            except ReembeddingRefused as error:
                raise AirflowFailException(str(error)) from error
        for line in report.lines():
            self.log.info("%s", line)
        if report.failed:
            raise AirflowFailException(f"{len(report.failed)} documents could not be loaded: see the log")
        return {"collection": report.collection, "points": report.point_count, "is_switched": report.is_switched}


def selection(context: Context) -> dict[str, Any]:
    """Which documents this run is about, as arguments of ingestion.listing.list_sources."""
    params = context["params"]
    if params.get("keys"):
        return {"keys": list(params["keys"])}
    prefix = params.get("prefix") or ""
    run = context["dag_run"]
    run_type = str(getattr(run.run_type, "value", run.run_type))
    if run_type not in INTERVAL_RUN_TYPES:
        return {
            "prefix": prefix,
            "modified_from": _moment("modified_from", params.get("modified_from")),
            "modified_to": _moment("modified_to", params.get("modified_to")),
        }
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None:
        raise AirflowFailException(f"The {run_type} run {run.run_id} has no data interval.")
    if run_type == "scheduled":
        last_end = context.get("prev_data_interval_end_success")
        if last_end and last_end < start:
            start = last_end
    # plain datetimes: what Airflow hands over may be a lazy proxy of its own kind
    return {
        "prefix": prefix,
        "modified_from": datetime.fromisoformat(start.isoformat()),
        "modified_to": datetime.fromisoformat(end.isoformat()),
    }


def batches(jobs: Sequence[JobRecord], max_batch_count: int) -> list[Batch]:
    """Jobs in as many batches as there are jobs, or else in at most `max_batch_count` of nearly equal size."""
    size = max(1, math.ceil(len(jobs) / max_batch_count))
    return [list(jobs[start : start + size]) for start in range(0, len(jobs), size)]


def _record(job: Job) -> JobRecord:
    record: JobRecord = job.model_dump(mode="json", exclude_none=True)
    return record


def _choice(params: Mapping[str, Any], name: str) -> Any:
    value = params.get(name)
    return None if value == AS_IN_SETTINGS else value


def _moment(name: str, text: str | None) -> datetime | None:
    """An ISO 8601 time of a parameter; one without an offset is UTC."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise AirflowFailException(
            f"The parameter {name} is no ISO 8601 time such as 2026-03-01T05:00:00+00:00: {text!r}"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
