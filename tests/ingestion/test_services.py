"""The embedded services alone: detached processes, ports, PostgreSQL and the S3 gateway (Airflow: tests/e2e)."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import psycopg2
import pytest

from ingestion.errors import AccessRefused, PortTaken, ServiceStartError
from ingestion.object_store import ObjectStore
from ingestion.services.airflow_api import AirflowApi
from ingestion.services.object_gateway import ObjectGateway, S3Access
from ingestion.services.postgres import Postgres
from ingestion.services.process import (
    DetachedProcess,
    Ports,
    any_free_port,
    is_free,
    wait_until_open,
)
from ingestion.services.stack import EmbeddedStack
from ingestion.settings import Settings


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ObjectGateway]:
    gateway = ObjectGateway(tmp_path, port=any_free_port())
    yield gateway
    gateway.stop()


def _store(access: S3Access) -> ObjectStore:
    return ObjectStore.connect(
        Settings(
            s3_endpoint=access.endpoint,
            s3_access_key=access.access_key,
            s3_secret_key=access.secret_key,  # type: ignore[arg-type]
        )
    )


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_detached_process_is_found_again_and_stopped_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '600']);"
        "print('child', child.pid, flush=True); time.sleep(600)"
    )
    process = DetachedProcess("sleeper", tmp_path)
    process.start(_python(code), env=os.environ, cwd=tmp_path)
    while "child" not in process.log_tail():
        time.sleep(0.05)
    child = psutil.Process(int(process.log_tail().split()[1]))
    found = DetachedProcess("sleeper", tmp_path).process()
    assert found is not None
    assert os.getsid(found.pid) == found.pid
    assert stat.S_IMODE(process.log_file.stat().st_mode) == 0o600
    assert DetachedProcess("sleeper", tmp_path).stop() is True
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert process.process() is None
    assert process.stop() is False


def test_a_process_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);print('ready', flush=True); time.sleep(600)"
    )
    process = DetachedProcess("stubborn", tmp_path)
    process.start(_python(code), env=os.environ, cwd=tmp_path)
    while "ready" not in process.log_tail():
        time.sleep(0.05)
    assert process.stop(stop_signal=signal.SIGTERM, timeout_s=0.5) is True
    assert process.process() is None


def test_a_pid_used_again_by_another_program_is_left_alone(tmp_path: Path) -> None:
    process = DetachedProcess("gone", tmp_path)
    (tmp_path / "run").mkdir()
    record = {"pid": os.getpid(), "create_time": psutil.Process().create_time() - 1000, "argv": []}
    (tmp_path / "run" / "gone.json").write_text(json.dumps(record))
    assert process.process() is None
    assert process.stop() is False


def test_a_program_that_ends_while_starting_is_reported_with_its_last_words(tmp_path: Path) -> None:
    process = DetachedProcess("broken", tmp_path)
    process.start(_python("import sys; sys.exit('no licence found')"), env=os.environ, cwd=tmp_path)
    with pytest.raises(ServiceStartError, match=r"(?s)broken ended while starting.*no licence found"):
        wait_until_open(process, any_free_port(), timeout_s=30)


def test_a_requested_port_that_is_taken_is_refused_naming_its_owner(tmp_path: Path, listener: int) -> None:
    with pytest.raises(PortTaken, match=rf"port {listener} for airflow is used by .*pid {os.getpid()}"):
        Ports(tmp_path).choose("airflow", requested=listener, usual=8080)


def test_a_usual_port_that_is_taken_is_replaced_and_the_choice_is_kept(tmp_path: Path, listener: int) -> None:
    chosen = Ports(tmp_path).choose("airflow", requested=None, usual=listener)
    assert chosen != listener
    assert is_free(chosen)
    assert Ports(tmp_path).choose("airflow", requested=None, usual=listener) == chosen
    assert Ports(tmp_path).last("airflow") == chosen


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """Not in pytest's own folder: each pytest that starts closes that to other users, as PostgreSQL is under root."""
    with TemporaryDirectory(prefix="ocr2kb-") as folder:
        yield Path(folder)


def test_postgres_keeps_its_data_over_a_restart_and_outlives_its_starter(open_dir: Path) -> None:
    postgres = Postgres(open_dir)
    try:
        uri = postgres.start()
        assert uri.startswith("postgresql://postgres@/airflow?host=")
        connection = psycopg2.connect(uri)
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE kept (word text); INSERT INTO kept VALUES ('here')")
        connection.close()
        assert Postgres(open_dir).running()
        assert Postgres(open_dir).start() == uri
        assert Postgres(open_dir).stop() is True
        assert Postgres(open_dir).stop() is False
        connection = psycopg2.connect(Postgres(open_dir).start())
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT word FROM kept")
            assert cursor.fetchone() == ("here",)
        connection.close()
    finally:
        postgres.stop()
    assert not postgres.running()


def test_the_gateway_keeps_objects_and_credentials_over_a_restart(tmp_path: Path, gateway: ObjectGateway) -> None:
    access = gateway.start()
    store = _store(access)
    store.ensure_bucket("manuals")
    etag = store.put_bytes("manuals", "pumps/Überdruck 3.pdf", b"%PDF-1.7")
    assert gateway.start() == access
    assert gateway.stop() is True
    assert gateway.running() is False
    again = gateway.start()
    assert again == access
    assert store.stat("manuals", "pumps/Überdruck 3.pdf").etag == etag
    assert store.get_bytes("manuals", "pumps/Überdruck 3.pdf") == b"%PDF-1.7"
    assert stat.S_IMODE((tmp_path / "s3-credentials.json").stat().st_mode) == 0o600


def test_the_gateway_refuses_a_wrong_secret_and_shows_its_own_to_no_one(gateway: ObjectGateway) -> None:
    access = gateway.start()
    with pytest.raises(AccessRefused):
        _store(S3Access(access.endpoint, access.access_key, "wrong-" + access.secret_key)).ensure_bucket("manuals")
    arguments = [argument for process in psutil.process_iter(["cmdline"]) for argument in process.info["cmdline"] or []]
    assert not any(access.secret_key in argument for argument in arguments)


def test_the_gateway_on_a_taken_port_says_so(tmp_path: Path, listener: int) -> None:
    with pytest.raises(PortTaken, match=str(listener)):
        ObjectGateway(tmp_path, port=listener).start()


def test_nothing_runs_in_a_new_state_directory_and_stopping_it_is_harmless(tmp_path: Path) -> None:
    stack = EmbeddedStack(tmp_path / "state")
    assert stack.status() == {"Airflow": False, "PostgreSQL": False, "S3 gateway": False}
    assert stack.stop() == []


def test_a_failed_start_leaves_nothing_running(open_dir: Path, listener: int) -> None:
    stack = EmbeddedStack(open_dir / "state", s3_port=any_free_port(), airflow_port=listener)
    with pytest.raises(PortTaken, match=str(listener)):
        stack.start()
    assert stack.status() == {"Airflow": False, "PostgreSQL": False, "S3 gateway": False}


def test_services_without_a_checkout_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceStartError, match="no dags folder"):
        EmbeddedStack(tmp_path, repository=tmp_path)


def test_an_api_server_that_is_not_there_has_no_health() -> None:
    api = AirflowApi(f"http://127.0.0.1:{any_free_port()}", "admin", "x")
    assert api.health() == {}
    assert api.is_healthy() is False
    api.close()
