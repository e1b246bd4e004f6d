"""Write .env for docker compose: .env.example with fresh random secrets. Standard library only."""

from __future__ import annotations

import argparse
import base64
import os
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FERNET_KEY = "AIRFLOW_FERNET_KEY"


def filled(example: str) -> str:
    """The example with a random value after each `NAME=` that has none."""
    return "".join(_filled_line(line) for line in example.splitlines(keepends=True))


def _filled_line(line: str) -> str:
    name, separator, value = line.rstrip("\n").partition("=")
    if line.startswith("#") or not separator or value:
        return line
    secret = base64.urlsafe_b64encode(os.urandom(32)).decode() if name == FERNET_KEY else secrets.token_hex(24)
    return f"{name}={secret}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / ".env")
    target = parser.parse_args().out
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        sys.stderr.write(f"{target} exists and was left as it is; remove it to make new secrets.\n")
        return 1
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(filled((ROOT / ".env.example").read_text(encoding="utf-8")))
    sys.stdout.write(f"{target} written. The Airflow password of `admin` is AIRFLOW_ADMIN_PASSWORD in it.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
