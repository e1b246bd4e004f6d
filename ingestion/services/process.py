"""Detached processes that outlive the command that started them: pid files, log files, ports, clean stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from ingestion.errors import PortTaken, ServiceStartError

LOCALHOST = "127.0.0.1"


class DetachedProcess:
    """One long-running program with a pid file and a log file under the state directory.

    The pid file holds the pid and the process's creation time: a pid that another program uses by now is never taken
    for ours, and nothing but what was started here is ever stopped.
    """

    def __init__(self, name: str, state_dir: Path) -> None:
        self.name = name
        self.log_file = state_dir / "logs" / f"{name}.log"
        self._pid_file = state_dir / "run" / f"{name}.json"

    def process(self) -> psutil.Process | None:
        """The running process, or None."""
        try:
            record = json.loads(self._pid_file.read_text())
            process = psutil.Process(record["pid"])
            if abs(process.create_time() - record["create_time"]) > 1 or process.status() == psutil.STATUS_ZOMBIE:
                return None
        except (FileNotFoundError, json.JSONDecodeError, psutil.NoSuchProcess):
            return None
        return process

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        """Start the program in a session of its own; its output goes to the log file, which only the owner can read."""
        for folder in (self.log_file.parent, self._pid_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as log:
            started = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
            )
        try:
            create_time = psutil.Process(started.pid).create_time()
        except psutil.NoSuchProcess:
            raise self.error("ended at once") from None
        self._pid_file.write_text(json.dumps({"pid": started.pid, "create_time": create_time, "argv": list(argv)}))

    def stop(self, *, stop_signal: signal.Signals = signal.SIGTERM, timeout_s: float = 10.0) -> bool:
        """Ask the program to end, then end it and every child it leaves behind. False where nothing was running."""
        process = self.process()
        if process is None:
            self._pid_file.unlink(missing_ok=True)
            return False
        family = [process, *process.children(recursive=True)]
        process.send_signal(stop_signal)
        psutil.wait_procs([process], timeout=timeout_s)
        _, alive = psutil.wait_procs(family, timeout=1.0)
        for left in alive:
            left.kill()
        psutil.wait_procs(alive, timeout=5.0)
        self._pid_file.unlink(missing_ok=True)
        return True

    def log_tail(self, line_count: int = 15) -> str:
        """The last lines of the log."""
        return tail(self.log_file, line_count)

    def error(self, what: str) -> ServiceStartError:
        """A start error for this program, with the end of its log."""
        return ServiceStartError(f"{self.name} {what}. Last lines of {self.log_file}:\n{self.log_tail()}")


def tail(path: Path, line_count: int = 15) -> str:
    """The last lines of a text file; says so where there are none."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    return "\n".join(lines[-line_count:]) or "(the log is empty)"


def wait_until_open(process: DetachedProcess, port: int, timeout_s: float) -> None:
    """Wait until the process listens on the port of 127.0.0.1.

    Raises ServiceStartError as soon as the process has ended, or when the time is over.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.process() is None:
            raise process.error("ended while starting")
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            if probe.connect_ex((LOCALHOST, port)) == 0:
                return
        time.sleep(0.1)
    raise process.error(f"does not listen on port {port} after {timeout_s:.0f} s")


class Ports:
    """Which service uses which port, kept in the state directory: addresses stay the same from start to start."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / "ports.json"

    def choose(self, service: str, *, requested: int | None, usual: int) -> int:
        """A free port: the requested one (PortTaken if it is not free), else the last one, the usual one, or any."""
        known = self._read()
        if requested is not None:
            if not is_free(requested):
                raise PortTaken(
                    f"port {requested} for {service} is used by {port_owner(requested)}. "
                    "Stop that program or choose another port."
                )
            port = requested
        else:
            port = next((p for p in (known.get(service), usual) if p is not None and is_free(p)), 0) or any_free_port()
        self._file.write_text(json.dumps({**known, service: port}, indent=2))
        return port

    def last(self, service: str) -> int | None:
        """The port the service used last."""
        return self._read().get(service)

    def _read(self) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads(self._file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return found


def is_free(port: int) -> bool:
    """True where a server could listen on the port of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except OSError:
            return False
    return True


def any_free_port() -> int:
    """A port the operating system gives."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOCALHOST, 0))
        return int(probe.getsockname()[1])


def port_owner(port: int) -> str:
    """Name and pid of the program that listens on a port, as far as this user may know."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        pass
    return "another program"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    partial.replace(path)
