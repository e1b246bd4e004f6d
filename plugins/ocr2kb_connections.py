"""Settings for tasks: the connections `ocr2kb_minio` and `ocr2kb_qdrant`, where they exist, win over the environment.

`ocr2kb_minio`: host, port, login (access key), password (secret key); extra: `endpoint_url` (instead of host and
port), `secure` (https; default true unless the port is 9000), `region`, `verify_tls`, `ca_file`, `source_bucket`,
`artifact_bucket`.
`ocr2kb_qdrant`: host (a URL, or a name with port), password (API key); extra: `secure`, `collection`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from ingestion.workspace import Workspace

MINIO_CONNECTION = "ocr2kb_minio"
QDRANT_CONNECTION = "ocr2kb_qdrant"

logger = logging.getLogger(__name__)


@contextmanager
def open_workspace() -> Iterator[Workspace]:
    """The workspace of a task, closed at its end."""
    from ingestion.settings import Settings
    from ingestion.workspace import Workspace

    with Workspace(Settings.load(**settings_of_connections())) as workspace:
        yield workspace


def settings_of_connections() -> dict[str, Any]:
    """What the two connections say, as fields of ingestion's Settings; empty where neither exists."""
    minio = _connection(MINIO_CONNECTION)
    qdrant = _connection(QDRANT_CONNECTION)
    return {
        **(minio_settings(minio) if minio is not None else {}),
        **(qdrant_settings(qdrant) if qdrant is not None else {}),
    }


def minio_settings(connection: Connection) -> dict[str, Any]:
    """The object store's fields; a field the connection leaves open is not in the result."""
    extra = connection.extra_dejson
    return _given(
        s3_endpoint=extra.get("endpoint_url") or _url(connection, default_port=9000),
        s3_access_key=connection.login,
        s3_secret_key=connection.password,
        s3_region=extra.get("region") or extra.get("region_name"),
        s3_verify_tls=extra.get("verify_tls"),
        s3_ca_file=extra.get("ca_file"),
        source_bucket=extra.get("source_bucket"),
        artifact_bucket=extra.get("artifact_bucket"),
    )


def qdrant_settings(connection: Connection) -> dict[str, Any]:
    """The knowledge base's fields; a connection without a host leaves the local index in use."""
    extra = connection.extra_dejson
    return _given(
        qdrant_url=extra.get("url") or _url(connection, default_port=6333),
        qdrant_api_key=connection.password or extra.get("api_key"),
        collection=extra.get("collection"),
    )


def _url(connection: Connection, *, default_port: int) -> str | None:
    """The connection's address as a URL. A service's usual port means http, another https, unless `secure` says so."""
    host = connection.host
    if not host or "://" in host:
        return host
    port = connection.port or default_port
    secure = connection.extra_dejson.get("secure", port != default_port)
    if isinstance(secure, str):
        secure = secure.strip().lower() in ("1", "true", "yes", "on")
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _connection(name: str) -> Connection | None:
    from airflow.sdk import Connection
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return Connection.get(name)
    except AirflowNotFoundException:
        logger.debug("no connection %s: its settings come from the environment", name)
        return None
