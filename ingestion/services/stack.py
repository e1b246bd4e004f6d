"""All embedded services together: start what is not running, stop what was started here, say how to reach them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from ingestion.errors import ServiceStartError
from ingestion.services.airflow_api import AirflowApi
from ingestion.services.airflow_services import ADMIN, AirflowServices
from ingestion.services.object_gateway import ObjectGateway, S3Access
from ingestion.services.postgres import Postgres
from ingestion.services.process import write_private
from ingestion.settings import EMBEDDED_ENV_FILE

DAG_ID = "ingest_manuals"
DAG_PARSE_TIMEOUT_S = 120.0
LOCK_TIMEOUT_S = 600.0
REPOSITORY = Path(__file__).resolve().parents[2]

# name → (slots, description); docs and docker-compose make the same pools with other numbers
POOLS = {
    "gpu": (1, "Reading pages: one document at a time on one accelerator, or on the CPU of one machine."),
    "knowledge_base": (1, "Writing to Qdrant: local mode is one process at a time."),
}


@dataclass(frozen=True, slots=True)
class StackAccess:
    """How to reach the running services."""

    state_dir: Path
    s3: S3Access
    airflow: AirflowApi
    airflow_user: str
    airflow_password: str


class EmbeddedStack:
    """The services of one state directory; several may run side by side, each on ports of its own."""

    def __init__(
        self,
        state_dir: Path,
        *,
        repository: Path = REPOSITORY,
        s3_port: int | None = None,
        airflow_port: int | None = None,
    ) -> None:
        self.state_dir = state_dir.resolve()
        if not (repository / "dags").is_dir():
            raise ServiceStartError(f"{repository} has no dags folder: the embedded services run from a checkout.")
        self._postgres = Postgres(self.state_dir)
        self.gateway = ObjectGateway(self.state_dir, port=s3_port)
        self._airflow = AirflowServices(
            self.state_dir, dags_dir=repository / "dags", plugins_dir=repository / "plugins", port=airflow_port
        )

    def start(self, on_step: Callable[[str], None] = lambda _: None) -> StackAccess:
        """Start what is not running and wait until everything answers; `on_step` hears what is being waited for.

        When one service does not start, those started by this call are stopped again and ServiceStartError (or
        PortTaken) is raised.
        """
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock():
            before = self.status()
            try:
                on_step("S3 gateway")
                s3 = self.gateway.start()
                on_step("PostgreSQL")
                database_uri = self._postgres.start()
                on_step("Airflow (about a minute the first time)" if not before["Airflow"] else "Airflow")
                api = self._airflow.start(database_uri, self._task_env(s3))
                for name, (slot_count, description) in POOLS.items():
                    api.ensure_pool(name, slot_count, description)
                on_step("the DAG")
                api.unpause_when_parsed(DAG_ID, DAG_PARSE_TIMEOUT_S)
            except BaseException:
                self._stop(keep={name for name, was_running in before.items() if was_running})
                raise
            self._write_env_file(s3)
        return StackAccess(self.state_dir, s3, api, ADMIN, self._airflow.password())

    def stop(self) -> list[str]:
        """Stop the services of this state directory; returns the names of those that were running."""
        if not self.state_dir.is_dir():
            return []
        with self._lock():
            return self._stop(keep=set())

    def airflow_command(self, arguments: Sequence[str]) -> int:
        """Run one `airflow …` command on the running services; returns its exit code. Raises ServiceStartError."""
        if not all(self.status().values()):
            raise ServiceStartError(f"the services of {self.state_dir} do not run: start them with `make up`.")
        return self._airflow.command(arguments, self._postgres.start(), self._task_env(self.gateway.start()))

    def status(self) -> dict[str, bool]:
        """Which services run."""
        return {
            "Airflow": self._airflow.running(),
            "PostgreSQL": self._postgres.running(),
            "S3 gateway": self.gateway.running(),
        }

    def _stop(self, keep: set[str]) -> list[str]:
        stops = {"Airflow": self._airflow.stop, "PostgreSQL": self._postgres.stop, "S3 gateway": self.gateway.stop}
        return [name for name, stop in stops.items() if name not in keep and stop()]

    @contextmanager
    def _lock(self) -> Iterator[None]:
        lock = FileLock(self.state_dir / "services.lock")
        try:
            lock.acquire(timeout=LOCK_TIMEOUT_S)
        except Timeout:
            raise ServiceStartError(
                f"another command has been starting or stopping the services of {self.state_dir} "
                f"for {LOCK_TIMEOUT_S:.0f} s; end it and try again."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _task_env(self, s3: S3Access) -> dict[str, str]:
        """The object store as an Airflow connection, and the state directory for the local index."""
        url = urlsplit(s3.endpoint)
        connection = {
            "conn_type": "generic",
            "host": url.hostname,
            "port": url.port,
            "login": s3.access_key,
            "password": s3.secret_key,
            "extra": {"secure": False},
        }
        return {"AIRFLOW_CONN_OCR2KB_MINIO": json.dumps(connection), "OCR2KB_STATE_DIR": str(self.state_dir)}

    def _write_env_file(self, s3: S3Access) -> None:
        """What the command line needs to find the embedded object store (see ingestion.settings)."""
        lines = {
            "OCR2KB_S3_ENDPOINT": s3.endpoint,
            "OCR2KB_S3_ACCESS_KEY": s3.access_key,
            "OCR2KB_S3_SECRET_KEY": s3.secret_key,
        }
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        write_private(self.state_dir / EMBEDDED_ENV_FILE, text)
