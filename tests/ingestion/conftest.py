"""A real S3 endpoint for all tests of ingestion: the embedded gateway, started once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ingestion.object_store import ObjectStore
from ingestion.services.object_gateway import ObjectGateway, S3Access
from ingestion.settings import Settings


@pytest.fixture(scope="session")
def s3_access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Access]:
    gateway = ObjectGateway(tmp_path_factory.mktemp("gateway"))
    try:
        yield gateway.start()
    finally:
        gateway.stop()


@pytest.fixture
def settings(s3_access: S3Access, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings with buckets of their own for each test."""
    suffix = uuid.uuid4().hex[:12]
    return Settings.load(
        state_dir=tmp_path_factory.mktemp("state"),
        s3_endpoint=s3_access.endpoint,
        s3_access_key=s3_access.access_key,
        s3_secret_key=s3_access.secret_key,
        source_bucket=f"manuals-{suffix}",
        artifact_bucket=f"artifacts-{suffix}",
    )


@pytest.fixture
def store(settings: Settings) -> ObjectStore:
    store = ObjectStore.connect(settings)
    store.ensure_bucket(settings.source_bucket)
    store.ensure_bucket(settings.artifact_bucket)
    return store
