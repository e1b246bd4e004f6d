"""What the end-to-end tests do with the running services."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pymupdf

from ingestion.manifest import Manifest
from ingestion.services.stack import DAG_ID, EmbeddedStack, StackAccess
from ingestion.workspace import Workspace
from knowledge_base.search import Hit, search

RUN_TIMEOUT_S = 420.0


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended: its state and its task instances."""

    run_id: str
    state: str
    tasks: list[dict[str, Any]]

    def states(self, task_id: str) -> list[str]:
        return [task["state"] for task in self.tasks if task["task_id"] == task_id]

    def documents(self) -> list[str]:
        """The documents of the mapped tasks, by the names the UI shows."""
        return sorted(task["rendered_map_index"] for task in self.tasks if task["task_id"] == "document.fetch")


@dataclass(frozen=True)
class RunningServices:
    stack: EmbeddedStack
    access: StackAccess
    workspace: Workspace

    @property
    def bucket(self) -> str:
        return self.workspace.settings.source_bucket

    def upload(self, key: str, data: bytes) -> None:
        self.workspace.store.put_bytes(self.bucket, key, data, content_type="application/pdf")

    def uri(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def manifest(self, key: str) -> Manifest:
        return self.workspace.manifests.read(self.bucket, key)

    def trigger(self, **conf: Any) -> str:
        return self.access.airflow.trigger(DAG_ID, conf)

    def run(self, **conf: Any) -> FinishedRun:
        """A manual run with these parameters, to its end."""
        return self.finished(self.trigger(**conf))

    def finished(self, run_id: str, dag_id: str = DAG_ID) -> FinishedRun:
        for run in self.access.airflow.wait(dag_id, run_id, timeout_s=RUN_TIMEOUT_S, interval_s=0.5):
            state = run["state"]
        return FinishedRun(run_id, state, self.tasks(run_id, dag_id))

    def tasks(self, run_id: str, dag_id: str = DAG_ID) -> list[dict[str, Any]]:
        return self.access.airflow.task_instances(dag_id, run_id)

    def task(self, run_id: str, task_id: str) -> dict[str, Any] | None:
        """The one instance of a task that is not mapped over several documents."""
        return next((task for task in self.tasks(run_id) if task["task_id"] == task_id and task["try_number"]), None)

    def log(self, run_id: str, task_id: str, *, map_index: int = -1, try_number: int = 1) -> str:
        return self.access.airflow.task_log(DAG_ID, run_id, task_id, map_index=map_index, try_number=try_number)

    def points(self, key: str, *, revision: str | None = None) -> list[str] | int:
        """The ids of a source's points, or the number of those of one revision."""
        with self.workspace.open_knowledge_base() as knowledge_base:
            if revision is not None:
                return knowledge_base.count(self.uri(key), revision=revision)
            return knowledge_base.point_ids(self.uri(key))

    def search(self, question: str, k: int = 5) -> list[Hit]:
        embedder, sparse_encoder = self.workspace.embedder, self.workspace.sparse_encoder
        with self.workspace.open_knowledge_base() as knowledge_base:
            return search(knowledge_base, embedder, sparse_encoder, question, k=k)

    def set_last_modified(self, key: str, moment: datetime) -> None:
        """Move an object's modification time, which S3 has no request for, in the store's own metadata."""
        database = self.stack.state_dir / "object-store" / "meta.db"
        with sqlite3.connect(database, timeout=30) as connection:
            inode = 1
            for name in (self.bucket, *key.split("/")):
                (inode,) = connection.execute(
                    "SELECT inode FROM jfs_edge WHERE parent = ? AND name = ?", (inode, name.encode())
                ).fetchone()
            connection.execute(
                "UPDATE jfs_node SET mtime = ?, mtimensec = 0 WHERE inode = ?",
                (int(moment.timestamp() * 1_000_000), inode),
            )
        connection.close()
        wait_for(lambda: self.workspace.store.stat(self.bucket, key).last_modified == moment, timeout_s=10)


def wait_for(condition: Callable[[], Any], *, timeout_s: float) -> Any:
    """The first true value of the condition; TimeoutError when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.2)
    raise TimeoutError(f"not within {timeout_s:.0f} s")


def pages_of(pdf: bytes, first_page_number: int, last_page_number: int) -> bytes:
    """A PDF of some of another's pages, the same bytes each time."""
    with pymupdf.open(stream=pdf) as whole, pymupdf.open() as part:
        part.insert_pdf(whole, from_page=first_page_number - 1, to_page=last_page_number - 1)
        data: bytes = part.tobytes(garbage=3, no_new_id=True)
    return data
