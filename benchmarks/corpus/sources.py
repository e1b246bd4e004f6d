"""Find the source PDF of a manual: a file inside a Debian package, fetched with apt-get and unpacked into a cache."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class ManualSpec(BaseModel):
    """One manual of the corpus.

    `package` is a Debian package and `path` the PDF's absolute path inside it; `package` of the form
    `file:/absolute/path.pdf` names a local file instead. `pages` is the first and last page, 1-based and inclusive.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    package: str
    path: str = ""
    pages: tuple[int, int]
    lang: str
    split: str = "dev"


class SourceNotFound(Exception):
    """The PDF of a manual could not be obtained; the message says what to install or check."""


def default_cache_dir() -> Path:
    """Where packages are kept between runs: $XDG_CACHE_HOME or ~/.cache, folder `manuals_corpus`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "manuals_corpus"


def fetch_pdf(package: str, path: str, cache_dir: Path) -> Path:
    """The local path of the PDF `path` of Debian package `package`, downloading and unpacking it when needed.

    Raises SourceNotFound when the tools or the package are missing or the package holds no such file.
    """
    if package.startswith("file:"):
        local = Path(package.removeprefix("file:"))
        if not local.is_file():
            raise SourceNotFound(f"{local} does not exist")
        return local
    unpacked = cache_dir / "x" / package
    wanted = unpacked / path.lstrip("/")
    if wanted.is_file():
        return wanted
    compressed = wanted.with_name(wanted.name + ".gz")
    if not compressed.is_file():
        _unpack(package, cache_dir / "debs", unpacked)
    if not wanted.is_file() and compressed.is_file():
        with gzip.open(compressed) as source, wanted.open("wb") as target:
            shutil.copyfileobj(source, target)
    if not wanted.is_file():
        raise SourceNotFound(f"the package {package} unpacked in {unpacked} holds no {path}")
    return wanted


def _unpack(package: str, debs_dir: Path, unpacked: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise SourceNotFound(f"{tool} is not installed: the corpus is built on Debian or Ubuntu")
    debs_dir.mkdir(parents=True, exist_ok=True)
    unpacked.mkdir(parents=True, exist_ok=True)
    if not list(debs_dir.glob(f"{package}_*.deb")):
        _run(["apt-get", "download", "-qq", package], debs_dir)
    archives = sorted(debs_dir.glob(f"{package}_*.deb"))
    if not archives:
        raise SourceNotFound(f"apt-get downloaded no archive of {package} (is it in the configured Debian release?)")
    _run(["dpkg-deb", "-x", str(archives[-1]), str(unpacked)], debs_dir)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SourceNotFound(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
