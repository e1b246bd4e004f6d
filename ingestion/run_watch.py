"""Watch a DAG run document by document and page by page: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ingestion.artifacts import ReadingProgress
from ingestion.services.airflow_api import FINISHED_STATES, AirflowApi
from ingestion.workspace import Workspace

POLL_INTERVAL_S = 0.7
STAGE_ORDER = ("fetch", "read", "recover", "chunk", "load")
_RUNNING = ("running", "queued", "scheduled", "up_for_retry")


@dataclass
class WatchedDocument:
    """One document of the run: the revision that is being read tells where its progress lies."""

    key: str
    revision: str
    stage: str = "waiting"
    page_number: int = 0
    page_count: int | None = None
    said: set[str] = field(default_factory=set)


class RunWatcher:
    """Shows what the stages report of their progress in the object store, and the task states Airflow knows."""

    def __init__(
        self,
        api: AirflowApi,
        workspace: Workspace,
        console: Console,
        revisions: dict[str, str],
        started_at: datetime,
    ) -> None:
        """`revisions`: object key → SHA-256 of its bytes; progress written before `started_at` belongs to others."""
        self._api = api
        self._workspace = workspace
        self._console = console
        self._started_at = started_at
        self._documents = {key: WatchedDocument(key, revision) for key, revision in revisions.items()}

    def watch(self, dag_id: str, run_id: str, *, timeout_s: float) -> str:
        """Show the run until it has ended; returns its state. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        with self._display() as display:
            while True:
                state = str(self._api.run(dag_id, run_id)["state"])
                self._update(self._api.task_instances(dag_id, run_id))
                display.show(self._documents.values())
                if state in FINISHED_STATES:
                    return state
                if time.monotonic() > deadline:
                    raise TimeoutError(f"run {run_id} is still {state} after {timeout_s:.0f} s")
                time.sleep(POLL_INTERVAL_S)

    def _update(self, tasks: list[dict[str, Any]]) -> None:
        # a task that has not started is named by its number; any other of the same document knows the name
        keys = {
            task["map_index"]: task["rendered_map_index"]
            for task in tasks
            if task["rendered_map_index"] not in (None, str(task["map_index"]))
        }
        for document in self._documents.values():
            states = {
                task["task_id"].rpartition(".")[2]: task["state"]
                for task in tasks
                if keys.get(task["map_index"]) == document.key
            }
            document.stage = _stage(states) or document.stage
            progress = self._progress(document.revision)
            if progress is not None:
                document.page_number, document.page_count = progress.page_number, progress.page_count

    def _progress(self, revision: str) -> ReadingProgress | None:
        store, bucket = self._workspace.store, self._workspace.settings.artifact_bucket
        newest = max(
            (
                item
                for item in store.list(bucket, f"{revision}/ocr-", modified_from=self._started_at)
                if item.key.endswith("/progress.json")
            ),
            key=lambda item: item.last_modified,
            default=None,
        )
        return ReadingProgress.model_validate_json(store.get_bytes(bucket, newest.key)) if newest else None

    @contextmanager
    def _display(self) -> Iterator[_Bars | _Lines]:
        if not self._console.is_terminal:
            yield _Lines(self._console)
            return
        with _Bars(self._console) as bars:
            yield bars


class _Bars:
    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("  {task.fields[name]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("pages  {task.fields[stage]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, documents: Any) -> None:
        for document in documents:
            if document.key not in self._tasks:
                self._tasks[document.key] = self._progress.add_task("", total=None, name=document.key, stage="")
            self._progress.update(
                self._tasks[document.key],
                completed=document.page_number,
                total=document.page_count,
                stage=document.stage,
            )


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    def show(self, documents: Any) -> None:
        for document in documents:
            self._say(document, document.stage)
            if document.page_number:
                self._say(document, f"page {document.page_number} of {document.page_count}")

    def _say(self, document: WatchedDocument, words: str) -> None:
        if words not in document.said:
            document.said.add(words)
            self._console.print(f"  {time.monotonic() - self._started:6.1f} s  {document.key}  {words}")


def _stage(states: dict[str, str]) -> str | None:
    """The stage a document is in, from the states of its tasks; "done" after the last one."""
    for name in reversed(STAGE_ORDER):
        state = states.get(name)
        if state in ("failed", "upstream_failed"):
            failed = next((stage for stage in STAGE_ORDER if states.get(stage) == "failed"), name)
            return f"{failed} failed"
        if state == "success":
            return "done" if name == STAGE_ORDER[-1] else f"{name} done"
        if state in _RUNNING:
            return f"{name} is tried again" if state == "up_for_retry" else name if state == "running" else None
    return None
