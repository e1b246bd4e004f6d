"""Prepare a deployment: database, pools, connections, the admin's password, buckets. Safe to repeat.

Runs once before the other Airflow services (service `airflow-init` of docker-compose.yaml); what it sets, it sets from
the environment each time, so that .env stays the one place to change it.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

logger = logging.getLogger("airflow_init")

POOLS = {
    "gpu": ("GPU_POOL_SLOTS", "1", "documents whose pages are read at the same time"),
    "knowledge_base": ("KNOWLEDGE_BASE_POOL_SLOTS", "4", "documents loaded into Qdrant at the same time"),
}


def write_admin_password(path: Path, password: str) -> None:
    """The file of Airflow's simple auth manager, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps({"admin": password}) + "\n", encoding="utf-8")


def set_pools(environment: dict[str, str]) -> None:
    from airflow.models.pool import Pool

    for name, (variable, default, description) in POOLS.items():
        slots = int(environment.get(variable) or default)
        Pool.create_or_update_pool(name, slots, description, include_deferred=False)
        logger.info("pool %s: %d slots", name, slots)


def set_connections(environment: dict[str, str]) -> None:
    """`ocr2kb_minio` and `ocr2kb_qdrant`, from the settings the workers have."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    qdrant = urlsplit(environment["OCR2KB_QDRANT_URL"])
    connections = [
        Connection(
            conn_id="ocr2kb_minio",
            conn_type="generic",
            description="Object store of the manuals",
            login=environment["OCR2KB_S3_ACCESS_KEY"],
            password=environment["OCR2KB_S3_SECRET_KEY"],
            extra=json.dumps(
                {
                    "endpoint_url": environment["OCR2KB_S3_ENDPOINT"],
                    "source_bucket": environment["OCR2KB_SOURCE_BUCKET"],
                    "artifact_bucket": environment["OCR2KB_ARTIFACT_BUCKET"],
                }
            ),
        ),
        Connection(
            conn_id="ocr2kb_qdrant",
            conn_type="generic",
            description="Knowledge base",
            host=qdrant.hostname,
            port=qdrant.port or (443 if qdrant.scheme == "https" else 6333),
            password=environment["OCR2KB_QDRANT_API_KEY"],
            extra=json.dumps({"secure": qdrant.scheme == "https"}),
        ),
    ]
    with create_session() as session:
        for connection in connections:
            session.execute(delete(Connection).where(Connection.conn_id == connection.conn_id))
            session.add(connection)
            logger.info("connection %s set", connection.conn_id)


def make_buckets() -> None:
    from ingestion.object_store import ObjectStore
    from ingestion.settings import Settings

    settings = Settings.load()
    store = ObjectStore.connect(settings)
    for bucket in (settings.source_bucket, settings.artifact_bucket):
        store.ensure_bucket(bucket)
        logger.info("bucket %s is there", bucket)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    environment = dict(os.environ)
    passwords_file = Path(environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    write_admin_password(passwords_file, environment["AIRFLOW_ADMIN_PASSWORD"])
    subprocess.run([str(Path(sys.executable).with_name("airflow")), "db", "migrate"], check=True)
    set_pools(environment)
    set_connections(environment)
    make_buckets()
    return 0


if __name__ == "__main__":
    sys.exit(main())
