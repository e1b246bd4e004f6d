"""Airflow on one machine: its four components as detached processes over PostgreSQL, with LocalExecutor.

Not `airflow standalone`: its parent process costs memory and leaves its children behind when it is ended, its task logs
are served on all interfaces, and four logs are mixed in one.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ingestion.errors import ServiceStartError
from ingestion.services.airflow_api import AirflowApi
from ingestion.services.process import (
    LOCALHOST,
    DetachedProcess,
    Ports,
    write_private,
)

USUAL_PORT = 8080
ADMIN = "admin"
MIGRATION_TIMEOUT_S = 180.0
START_TIMEOUT_S = 240.0
PARALLEL_TASK_COUNT = 4


class AirflowServices:
    """api-server, scheduler (which runs the tasks), dag-processor and triggerer; all listen on 127.0.0.1 only.

    `dags_dir` and `plugins_dir` are the repository's.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        dags_dir: Path,
        plugins_dir: Path,
        port: int | None = None,
    ) -> None:
        self._state_dir = state_dir
        self._home = state_dir / "airflow"
        self._dags_dir = dags_dir
        self._plugins_dir = plugins_dir
        self._requested_port = port
        self._ports = Ports(state_dir)
        self._components = {
            name: DetachedProcess(f"airflow-{name}", state_dir)
            for name in ("api-server", "scheduler", "dag-processor", "triggerer")
        }

    def running(self) -> bool:
        return all(component.process() is not None for component in self._components.values())

    def start(self, database_uri: str, task_env: Mapping[str, str]) -> AirflowApi:
        """Migrate the database once per Airflow version, start what is not running, wait until all four are healthy.

        `task_env` is added to the environment of the components and of the tasks they run.
        Raises ServiceStartError with the log of the component that did not come up.
        """
        airflow = _airflow_command()
        port = self._ports.last("airflow")
        if self._components["api-server"].process() is None or port is None:
            # the other components know the api-server by its port
            self.stop()
            port = self._ports.choose("airflow", requested=self._requested_port, usual=USUAL_PORT)
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        env = self.environment(database_uri, port, task_env)
        self._migrate(airflow, env)
        arguments = {
            "api-server": ["--host", LOCALHOST, "--port", str(port)],
            "scheduler": ["--skip-serve-logs"],
            "dag-processor": [],
            "triggerer": ["--skip-serve-logs"],
        }
        for name, component in self._components.items():
            if component.process() is None:
                component.start([str(airflow), name, *arguments[name]], env=env, cwd=self._dags_dir.parent)
        api = AirflowApi(f"http://{LOCALHOST}:{port}", ADMIN, self.password())
        try:
            self._wait_until_healthy(api)
        except BaseException:
            api.close()
            raise
        return api

    def command(self, arguments: Sequence[str], database_uri: str, task_env: Mapping[str, str]) -> int:
        """Run one `airflow …` command on these services; returns its exit code."""
        port = self._ports.last("airflow")
        if port is None or not self.running():
            raise ServiceStartError(f"Airflow of {self._state_dir} does not run.")
        env = self.environment(database_uri, port, task_env)
        return subprocess.run([str(_airflow_command()), *arguments], env=env, check=False).returncode

    def stop(self) -> bool:
        """Stop the components and the tasks that run; False where nothing was running."""
        with ThreadPoolExecutor(len(self._components)) as pool:
            return any(list(pool.map(DetachedProcess.stop, self._components.values())))

    def password(self) -> str:
        """The admin's password, made once and kept with mode 0600 in the file Airflow reads it from."""
        if not self._password_file.exists():
            self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(self._password_file, json.dumps({ADMIN: secrets.token_urlsafe(12)}))
        kept: dict[str, str] = json.loads(self._password_file.read_text())
        return kept[ADMIN]

    def environment(self, database_uri: str, port: int, task_env: Mapping[str, str]) -> dict[str, str]:
        """Airflow's settings as environment variables, on top of this process's own environment."""
        url = f"http://{LOCALHOST}:{port}"
        address = database_uri.removeprefix("postgresql")
        settings = {
            "CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
            "CORE__DAGS_FOLDER": str(self._dags_dir),
            "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__PARALLELISM": str(PARALLEL_TASK_COUNT),
            "CORE__PLUGINS_FOLDER": str(self._plugins_dir),
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._password_file),
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin",
            "API__BASE_URL": url,
            "API__HOST": LOCALHOST,
            "API__PORT": str(port),
            "API__WORKERS": "1",
            "DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2{address}",
            "DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"postgresql+asyncpg{address}",
            "LOGGING__BASE_LOG_FOLDER": str(self._home / "logs"),
            # A task's supervisor sleeps this long when it misses the moment its process ends (5 s by default)
            "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        }
        # Tasks talk to the api-server on this machine: never through a proxy meant for the outside world
        direct = ",".join(part for part in (os.environ.get("NO_PROXY"), LOCALHOST, "localhost") if part)
        return {
            **os.environ,
            **task_env,
            "AIRFLOW_HOME": str(self._home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "NO_PROXY": direct,
            "no_proxy": direct,
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
        }

    @property
    def _password_file(self) -> Path:
        return self._home / "admin-password.json"

    def _migrate(self, airflow: Path, env: Mapping[str, str]) -> None:
        marker = self._home / "database-version"
        wanted = version("apache-airflow-core")
        if marker.exists() and marker.read_text() == wanted:
            return
        log = self._state_dir / "logs" / "airflow-migration.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as stream:
            done = subprocess.run(
                [str(airflow), "db", "migrate"],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=MIGRATION_TIMEOUT_S,
                umask=0o077,
                check=False,
            )
        if done.returncode != 0:
            raise ServiceStartError(f"Airflow's database could not be made, see {log}:\n{log.read_text()[-2000:]}")
        marker.write_text(wanted)

    def _wait_until_healthy(self, api: AirflowApi) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not api.is_healthy():
            for component in self._components.values():
                if component.process() is None:
                    raise component.error("ended while starting")
            if time.monotonic() > deadline:
                health = api.health()
                ill = next((name for name, status in health.items() if status != "healthy"), "api-server")
                name = ill.replace("_", "-") if ill != "metadatabase" else "api-server"
                raise self._components[name].error(f"is not healthy after {START_TIMEOUT_S:.0f} s ({health})")
            time.sleep(0.5)


def _airflow_command() -> Path:
    try:
        version("apache-airflow-core")
    except PackageNotFoundError:
        raise ServiceStartError("Airflow is not installed: pip install 'ocr2-kb[embedded,airflow]'") from None
    return Path(sys.executable).with_name("airflow")
