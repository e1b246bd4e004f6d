"""A small client of Airflow's REST API v2: what the demo and the tests need, with errors that say what to look at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx

from ingestion.errors import ServiceStartError, ServiceUnavailable

REQUEST_TIMEOUT_S = 30.0
FINISHED_STATES = frozenset({"success", "failed"})
COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")

Json = dict[str, Any]


class AirflowApi:
    """Talks to one api-server as one user. All methods raise ServiceUnavailable when it does not answer."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url.rstrip("/")
        self._user = user
        self._password = password
        # trust_env: a proxy set for the outside world must not be asked for 127.0.0.1
        self._http = httpx.Client(base_url=self.url, timeout=REQUEST_TIMEOUT_S, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def health(self) -> dict[str, str]:
        """Status word of each component; empty while the server does not answer."""
        try:
            answer = self._http.get("/api/v2/monitor/health", timeout=5.0)
            answer.raise_for_status()
            found = answer.json()
        except (httpx.HTTPError, ValueError):
            return {}
        return {name: str((found.get(name) or {}).get("status")) for name in COMPONENTS}

    def is_healthy(self) -> bool:
        health = self.health()
        return bool(health) and all(status == "healthy" for status in health.values())

    def ensure_pool(self, name: str, slot_count: int, description: str) -> None:
        """Make the pool if it is not there; one that is there keeps its slots."""
        answer = self._send(
            "POST",
            "/api/v2/pools",
            json={"name": name, "slots": slot_count, "description": description, "include_deferred": False},
            accepted=(201, 409),
        )
        answer.close()

    def unpause_when_parsed(self, dag_id: str, timeout_s: float) -> None:
        """Wait until the DAG processor has read the DAG, then unpause it.

        Raises ServiceStartError with the import error when the file cannot be read.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            answer = self._send("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False}, accepted=(200, 404))
            if answer.status_code == 200:
                return
            for problem in self._get("/api/v2/importErrors")["import_errors"]:
                raise ServiceStartError(
                    f"Airflow cannot read {problem['filename']}:\n{str(problem['stack_trace'])[-2000:]}"
                )
            time.sleep(0.5)
        raise ServiceStartError(f"Airflow has not read the DAG {dag_id} after {timeout_s:.0f} s: see dag-processor.log")

    def trigger(self, dag_id: str, conf: Json | None = None) -> str:
        """Start a manual run now; returns its run id."""
        answer = self._send(
            "POST",
            f"/api/v2/dags/{dag_id}/dagRuns",
            json={"logical_date": None, "conf": conf or {}},
            accepted=(200, 201),
        )
        return str(answer.json()["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> Json:
        """One DAG run."""
        return self._get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")

    def runs(self, dag_id: str) -> list[Json]:
        """All runs of a DAG, oldest first."""
        found = self._get(f"/api/v2/dags/{dag_id}/dagRuns", order_by="run_after", limit=100)
        return list(found["dag_runs"])

    def wait(self, dag_id: str, run_id: str, *, timeout_s: float, interval_s: float = 1.0) -> Iterator[Json]:
        """Yield the run's state again and again until it has ended; TimeoutError when it takes too long."""
        deadline = time.monotonic() + timeout_s
        while True:
            run = self.run(dag_id, run_id)
            yield run
            if run["state"] in FINISHED_STATES:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"run {run_id} of {dag_id} is still {run['state']} after {timeout_s:.0f} s")
            time.sleep(interval_s)

    def task_instances(self, dag_id: str, run_id: str) -> list[Json]:
        """All task instances of a run, mapped ones included."""
        found = self._get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances", limit=100)
        instances = list(found["task_instances"])
        while len(instances) < found["total_entries"]:
            found = self._get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances", limit=100, offset=len(instances))
            instances += found["task_instances"]
        return instances

    def task_log(self, dag_id: str, run_id: str, task_id: str, *, map_index: int = -1, try_number: int = 1) -> str:
        """The text of one try's log, a line an event; an exception's type and text follow its event."""
        found = self._get(
            f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}", map_index=map_index
        )
        lines = []
        for event in found["content"]:
            lines.append(str(event.get("event", "")))
            lines += [f"{error['exc_type']}: {error['exc_value']}" for error in event.get("error_detail") or []]
        return "\n".join(lines)

    def failures(self, dag_id: str, run_id: str) -> list[str]:
        """What each failed task of a run said last, an entry a task."""
        found = []
        for task in self.task_instances(dag_id, run_id):
            if task["state"] != "failed":
                continue
            log = self.task_log(
                dag_id, run_id, task["task_id"], map_index=task["map_index"], try_number=task["try_number"]
            )
            said = [line for line in log.splitlines() if line and not line.startswith("::")]
            name = task["task_id"] + (f" [{task['rendered_map_index']}]" if task["rendered_map_index"] else "")
            found.append(f"{name}: {said[-1] if said else 'no log'}")
        return found

    def xcom(self, dag_id: str, run_id: str, task_id: str, *, map_index: int = -1, key: str = "return_value") -> Any:
        """What a task instance passed on."""
        found = self._get(
            f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}",
            map_index=map_index,
            deserialize=True,
        )
        return found["value"]

    def create_backfill(self, dag_id: str, from_date: str, to_date: str, *, reprocess: str = "none") -> Json:
        """Make the runs of all past intervals that start between two times, both included (ISO 8601)."""
        body = {"dag_id": dag_id, "from_date": from_date, "to_date": to_date, "reprocess_behavior": reprocess}
        found: Json = self._send("POST", "/api/v2/backfills", json=body, accepted=(200, 201)).json()
        return found

    def _get(self, path: str, **query: Any) -> Json:
        found: Json = self._send("GET", path, params=query).json()
        return found

    def _send(self, method: str, path: str, *, accepted: tuple[int, ...] = (200,), **request: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **request)
            if answer.status_code == 401:
                self._log_in()
                answer = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise self._unavailable(f"{type(error).__name__}: {error}.") from error
        if answer.status_code not in accepted:
            raise self._unavailable(f"{method} {path} answered {answer.status_code}: {answer.text[:500]}")
        return answer

    def _log_in(self) -> None:
        answer = self._http.post("/auth/token", json={"username": self._user, "password": self._password})
        if answer.status_code not in (200, 201):
            raise self._unavailable(f"login as {self._user} answered {answer.status_code}.")
        self._http.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def _unavailable(self, cause: str) -> ServiceUnavailable:
        return ServiceUnavailable(f"Airflow at {self.url}", cause, "See the logs of its components.")
