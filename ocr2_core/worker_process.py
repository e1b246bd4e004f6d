"""The parent's hand on a child process that parses hostile bytes: start it, read its messages in time, kill it.

A message is a 4-byte big-endian length, that many bytes of JSON, then the payload whose length the JSON gives as
`byte_count`. The child gets one JSON line on its standard input and no secrets: its environment holds only what Python
needs to start.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_PACKAGE_PARENT = Path(__file__).resolve().parent.parent
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "VIRTUAL_ENV")
_MAX_HEADER_BYTES = 64 * 1024 * 1024
_PIPE_BYTES = 1024 * 1024


class WorkerDied(Exception):
    """The child ended without finishing its answer; the text says how."""


class WorkerTimedOut(Exception):
    """The child gave no answer in time; it has been killed."""


class WorkerProcess:
    """One child at work on one request. Not safe for use by two threads at once; `close` may be called from any."""

    def __init__(self, request: dict[str, Any], *, max_payload_bytes: int = 0) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child, closed in close()
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment["PYTHONPATH"] = str(_PACKAGE_PARENT)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ocr2_core.render_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            close_fds=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)
        _widen_pipe(self._output)
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            # it stays open: the child ends when this end closes, that is with us
            self._process.stdin.flush()
        except BrokenPipeError:
            logger.debug("the worker %d died before it read its request", self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_message(self, timeout_s: float) -> tuple[dict[str, Any], bytearray]:
        """The next message and its payload. Raises WorkerDied or WorkerTimedOut, after which only `close` is of use."""
        deadline = time.monotonic() + timeout_s
        header_length = int.from_bytes(self._read_exactly(4, deadline), "big")
        if header_length > _MAX_HEADER_BYTES:
            raise WorkerDied("it sent a message of an impossible length")
        header: dict[str, Any] = json.loads(self._read_exactly(header_length, deadline))
        byte_count = int(header.get("byte_count", 0))
        if not 0 <= byte_count <= self._max_payload_bytes:
            raise WorkerDied(f"it sent {byte_count:,} bytes where at most {self._max_payload_bytes:,} are allowed")
        return header, self._read_exactly(byte_count, deadline)

    def _read_exactly(self, byte_count: int, deadline: float) -> bytearray:
        buffer = bytearray(byte_count)
        view = memoryview(buffer)
        position = 0
        while position < byte_count:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                self._process.kill()
                raise WorkerTimedOut
            received = os.readv(self._output, [view[position:]])
            if received == 0:
                raise WorkerDied(self._how_it_died())
            position += received
        return buffer

    def _how_it_died(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 2000))
        # its last words may quote the document, so they are for debugging only
        logger.debug("worker %d: %s", self.pid, self._stderr.read().decode("utf-8", "replace"))
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        if code < 0:
            return f"killed by signal {signal.Signals(-code).name}"
        return f"exit code {code}"

    def close(self) -> None:
        """Kill the child if it still runs and free everything. Safe to call twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._stderr.close()


def _widen_pipe(descriptor: int) -> None:
    """A page is megabytes and a pipe holds 64 KiB by default: fewer, larger reads. Linux only, never required."""
    try:
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (ImportError, AttributeError, OSError):
        logger.debug("the pipe to the worker keeps its default size")
