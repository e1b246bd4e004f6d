"""Reaching Qdrant: a server by URL, or a local folder that one process opens at a time behind a file lock."""

from __future__ import annotations

import json
import logging
import os
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from knowledge_base.errors import EmbeddedIndexError, KnowledgeBaseError, KnowledgeBaseUnavailable

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from qdrant_client import QdrantClient

logger = logging.getLogger(__name__)

_RETRYABLE_STATUS = {408, 423, 425, 429, 500, 502, 503, 504}
_RETRYABLE_GRPC = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED"}


class QdrantOptions(BaseModel):
    """Where the knowledge base is. Give `path` (local mode: no server, one process at a time) or `url`.

    `collection` is the alias that everybody uses; the collection behind it is `<alias>__<n>`. Times are in seconds.
    Where vectors and payload lie, how they are quantized, sharded and replicated counts for a collection made from now
    on, on a server. `int8` keeps a quarter of each vector in memory for the first pass; the best `oversampling` times
    as many candidates are then compared by their full vectors.
    """

    model_config = ConfigDict(frozen=True)

    path: Path | None = None
    url: str | None = None
    api_key: SecretStr | None = None
    prefer_grpc: bool = False
    timeout_s: int = Field(default=60, ge=1)
    lock_timeout_s: float = Field(default=60.0, ge=0)
    collection: str = Field(default="manuals", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    upload_batch_size: int = Field(default=128, ge=1, le=10_000)
    vectors_on_disk: bool = False
    sparse_index_on_disk: bool = False
    payload_on_disk: bool = True
    quantization: Literal["none", "int8"] = "none"
    oversampling: float = Field(default=2.0, ge=1.0)
    shard_count: int | None = Field(default=None, ge=1)
    replication_factor: int | None = Field(default=None, ge=1)
    write_consistency_factor: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _one_place(self) -> QdrantOptions:
        if (self.path is None) == (self.url is None):
            raise ValueError("give either a path (local mode) or a url (server)")
        return self

    @property
    def place(self) -> str:
        """The place in words, without secrets, for messages."""
        return f"Qdrant at {self.url}" if self.url else f"the local knowledge base {self.path}"


@contextmanager
def translated_errors(place: str) -> Iterator[None]:
    """Turn what qdrant-client raises into KnowledgeBaseUnavailable (worth a retry) or KnowledgeBaseError."""
    import grpc
    from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

    try:
        yield
    except ResourceExhaustedResponse as error:
        raise KnowledgeBaseUnavailable(f"{place} is overloaded: {error}", error.retry_after_s) from error
    except ResponseHandlingException as error:
        if type(error.source).__module__.startswith("pydantic"):
            raise KnowledgeBaseError(f"what answers as {place} does not speak Qdrant's API: {error.source}") from error
        reason = str(error.source) or type(error.source).__name__
        raise KnowledgeBaseUnavailable(f"cannot reach {place}: {reason}") from error
    except UnexpectedResponse as error:
        if error.status_code in (401, 403):
            raise KnowledgeBaseError(f"{place} refuses the API key (HTTP {error.status_code})") from error
        if error.status_code in _RETRYABLE_STATUS:
            raise KnowledgeBaseUnavailable(f"{place} answered: {error}") from error
        raise KnowledgeBaseError(f"{place} refuses the request: {error}") from error
    except grpc.RpcError as error:
        code = error.code().name if hasattr(error, "code") else "UNKNOWN"
        kind = KnowledgeBaseUnavailable if code in _RETRYABLE_GRPC else KnowledgeBaseError
        raise kind(f"{place} answered {code}: {error}") from error
    except (sqlite3.Error, EmbeddedIndexError) as error:
        raise KnowledgeBaseError(f"{place} cannot be read or written: {error}; check disk space and rights") from error


def open_client(options: QdrantOptions) -> tuple[QdrantClient, BaseFileLock | None]:
    """A client for `options`, and for local mode the lock that is now held (give it back with `release_lock`)."""
    from qdrant_client import QdrantClient

    if options.url is not None:
        client = QdrantClient(
            url=options.url,
            api_key=options.api_key.get_secret_value() if options.api_key else None,
            prefer_grpc=options.prefer_grpc,
            timeout=options.timeout_s,
            check_compatibility=False,
        )
        return client, None

    assert options.path is not None
    lock = _acquire_lock(options.path, options.lock_timeout_s)
    try:
        try:
            from knowledge_base.embedded_index import open_embedded
        except ImportError as error:
            raise KnowledgeBaseError(
                f"{options.place} needs the extra `embedded`: pip install 'ocr2-kb[embedded]', or name a Qdrant server"
            ) from error
        client = open_embedded(options.path)
    except BaseException as error:
        release_lock(options.path, lock)
        if isinstance(error, RuntimeError) and "already accessed" in str(error):
            raise KnowledgeBaseUnavailable(f"another Qdrant client holds {options.path}; close it and retry") from error
        if isinstance(error, OSError | ValueError | KeyError | sqlite3.Error):
            raise KnowledgeBaseError(f"{options.place} cannot be opened: {error}") from error
        raise
    return client, lock


def release_lock(path: Path, lock: BaseFileLock) -> None:
    """Give the local store back to the next process."""
    _holder_file(path).unlink(missing_ok=True)
    lock.release()


def _acquire_lock(path: Path, timeout_s: float) -> BaseFileLock:
    from filelock import FileLock, Timeout

    try:
        path.mkdir(parents=True, exist_ok=True)
        # Another thread than the opening one may close the store.
        lock = FileLock(path / "ocr2kb.lock", thread_local=False)
        lock.acquire(timeout=timeout_s)
    except Timeout as error:
        raise KnowledgeBaseUnavailable(
            f"the local knowledge base {path} is in use{_describe_holder(path)}; waited {timeout_s:g} s. "
            "Local mode serves one process at a time: wait for it, or use a Qdrant server."
        ) from error
    except OSError as error:
        raise KnowledgeBaseError(f"the local knowledge base {path} cannot be made or locked: {error}") from error
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "program": Path(sys.argv[0] or "python").name,
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        _holder_file(path).write_text(json.dumps(holder), encoding="utf-8")
    except OSError as error:
        logger.warning("cannot note who holds %s: %s", path, error)
    return lock


def _holder_file(path: Path) -> Path:
    # Beside the lock file, which every waiting process truncates when it tries the lock.
    return path / "ocr2kb.lock.json"


def _describe_holder(path: Path) -> str:
    try:
        holder = json.loads(_holder_file(path).read_text(encoding="utf-8"))
        return f" by process {holder['pid']} ({holder['program']}) on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
