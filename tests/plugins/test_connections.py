"""Airflow connections become settings, and win over the environment."""

from __future__ import annotations

import json
from typing import Any

import pytest


def set_connection(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "generic", **fields}))


def test_without_connections_nothing_is_set() -> None:
    from ocr2kb_connections import settings_of_connections

    assert settings_of_connections() == {}


@pytest.mark.parametrize(
    ("fields", "endpoint"),
    [
        ({"host": "minio", "port": 9000}, "http://minio:9000"),
        ({"host": "minio"}, "http://minio:9000"),
        ({"host": "minio", "port": 9000, "extra": {"secure": True}}, "https://minio:9000"),
        ({"host": "minio", "port": 9000, "extra": {"secure": "true"}}, "https://minio:9000"),
        ({"host": "s3.example.com", "port": 443}, "https://s3.example.com:443"),
        ({"host": "127.0.0.1", "port": 45123, "extra": {"secure": False}}, "http://127.0.0.1:45123"),
        ({"host": "::1", "port": 9000}, "http://[::1]:9000"),
        ({"host": "https://s3.example.com"}, "https://s3.example.com"),
        (
            {"host": "ignored", "extra": {"endpoint_url": "https://s3.eu-west-1.amazonaws.com"}},
            "https://s3.eu-west-1.amazonaws.com",
        ),
    ],
    ids=str,
)
def test_the_object_stores_address(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], endpoint: str) -> None:
    from ocr2kb_connections import settings_of_connections

    set_connection(monkeypatch, "ocr2kb_minio", **fields)
    assert settings_of_connections()["s3_endpoint"] == endpoint


def test_connections_win_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from ocr2kb_connections import open_workspace

    monkeypatch.setenv("OCR2KB_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("OCR2KB_S3_ENDPOINT", "http://elsewhere:9000")
    monkeypatch.setenv("OCR2KB_S3_SECRET_KEY", "another")
    monkeypatch.setenv("OCR2KB_ARTIFACT_BUCKET", "kept-from-the-environment")
    set_connection(
        monkeypatch,
        "ocr2kb_minio",
        host="minio",
        login="key",
        password="secret",
        extra={"region": "eu-west-1", "source_bucket": "scans"},
    )
    set_connection(monkeypatch, "ocr2kb_qdrant", host="qdrant", port=6333, password="api", extra={"collection": "kb"})
    with open_workspace() as workspace:
        settings = workspace.settings
    assert (settings.s3_endpoint, settings.s3_access_key, settings.s3_region) == (
        "http://minio:9000",
        "key",
        "eu-west-1",
    )
    assert settings.s3_secret_key.get_secret_value() == "secret"
    assert (settings.source_bucket, settings.artifact_bucket) == ("scans", "kept-from-the-environment")
    assert (settings.qdrant_url, settings.collection) == ("http://qdrant:6333", "kb")
    assert settings.qdrant_api_key is not None
    assert settings.qdrant_api_key.get_secret_value() == "api"
