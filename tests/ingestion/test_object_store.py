"""The object store against a real S3 endpoint."""

from __future__ import annotations

import hashlib
import io
import pickle
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ingestion.errors import AccessRefused, IngestionError, ObjectKeyRefused, ObjectMissing, ServiceUnavailable
from ingestion.listing import list_sources
from ingestion.object_store import ObjectStore
from ingestion.settings import Settings
from ingestion.workspace import Workspace


def test_bytes_come_back_as_they_went(store: ObjectStore, settings: Settings) -> None:
    etag = store.put_bytes(settings.source_bucket, "a/b.pdf", b"hello", content_type="application/pdf")
    buffer = io.BytesIO()
    download = store.download(settings.source_bucket, "a/b.pdf", buffer)
    assert buffer.getvalue() == b"hello"
    assert download.sha256 == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert download.size_bytes == 5
    assert download.etag == etag == "5d41402abc4b2a76b9719d911017c592"


def test_a_large_object_goes_up_in_parts(store: ObjectStore, settings: Settings, tmp_path: Path) -> None:
    small_parts = ObjectStore.connect(settings.model_copy(update={"s3_part_bytes": 5 * 2**20}))
    block = bytes(range(256)) * 4096
    path = tmp_path / "large"
    path.write_bytes(block * 12)
    with path.open("rb") as file:
        etag = small_parts.upload(settings.source_bucket, "large.bin", file, content_type="application/octet-stream")
    # the ETag of a multipart object ends in the number of its parts: 12 MiB in parts of 5 MiB
    assert etag.endswith("-3")
    buffer = io.BytesIO()
    download = store.download(settings.source_bucket, "large.bin", buffer)
    assert download.size_bytes == 12 * 2**20
    assert download.sha256 == hashlib.sha256(block * 12).hexdigest()


@pytest.mark.parametrize(
    "key",
    [
        "Anleitung für Geräte – Teil 1.pdf",
        "手册/第3章 安装.pdf",
        "with spaces/and+plus&amp;/100%.pdf",
        'quote\'s "here"; $(echo no) `no`.pdf',
        "/".join(["d" * 204] * 5),
        "..hidden/...pdf",
    ],
)
def test_any_key_works_and_touches_no_local_path(
    key: str, store: ObjectStore, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store.put_bytes(settings.source_bucket, key, b"x")
    [source] = list_sources(store, settings.source_bucket)
    assert source.key == key
    with Workspace(settings) as workspace, workspace.downloaded(source) as (path, download):
        assert path.name == "source"
        assert path.read_bytes() == b"x"
        assert download.size_bytes == 1
    assert not path.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["../../etc/passwd", "a/../b.pdf", "./a.pdf"])
def test_a_key_that_climbs_is_refused(
    key: str, store: ObjectStore, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ObjectKeyRefused, match="path segment is not supported"):
        store.put_bytes(settings.source_bucket, key, b"x")
    with pytest.raises(ObjectKeyRefused, match="path segment is not supported"):
        store.get_bytes(settings.source_bucket, key)
    assert list(store.list(settings.source_bucket)) == []
    assert list(tmp_path.iterdir()) == []


def test_listing_takes_a_half_open_interval(store: ObjectStore, settings: Settings) -> None:
    for name in ("b.pdf", "a.pdf", "sub/c.pdf"):
        store.put_bytes(settings.source_bucket, name, b"x")
    infos = {info.key: info for info in store.list(settings.source_bucket)}
    assert list(infos) == ["a.pdf", "b.pdf", "sub/c.pdf"]
    moment = infos["a.pdf"].last_modified
    assert moment.tzinfo is not None
    hour = timedelta(hours=1)

    def keys(**bounds: datetime) -> list[str]:
        return [source.key for source in list_sources(store, settings.source_bucket, **bounds)]

    assert keys(modified_from=moment - hour, modified_to=moment + hour) == ["a.pdf", "b.pdf", "sub/c.pdf"]
    assert "a.pdf" in keys(modified_from=moment)
    assert "a.pdf" not in keys(modified_to=moment)
    assert keys(modified_to=moment - hour) == []
    assert keys(modified_from=datetime.now(UTC) + hour) == []


def test_listing_by_prefix_and_by_keys(store: ObjectStore, settings: Settings) -> None:
    for name in ("pumps/one.pdf", "pumps/two.pdf", "fans/three.pdf", "folder/"):
        store.put_bytes(settings.source_bucket, name, b"" if name.endswith("/") else b"x")
    by_prefix = list_sources(store, settings.source_bucket, prefix="pumps/")
    assert [source.uri for source in by_prefix] == [
        f"s3://{settings.source_bucket}/pumps/one.pdf",
        f"s3://{settings.source_bucket}/pumps/two.pdf",
    ]
    named = list_sources(store, settings.source_bucket, keys=["fans/three.pdf", "pumps/one.pdf", "fans/three.pdf"])
    assert [source.key for source in named] == ["fans/three.pdf", "pumps/one.pdf"]
    assert "folder/" not in [source.key for source in list_sources(store, settings.source_bucket)]
    with pytest.raises(ObjectMissing, match=r"pumps/nine\.pdf does not exist"):
        list_sources(store, settings.source_bucket, keys=["pumps/nine.pdf"])


def test_what_is_not_there_is_missing(store: ObjectStore, settings: Settings) -> None:
    with pytest.raises(ObjectMissing):
        store.get_bytes(settings.source_bucket, "none.pdf")
    with pytest.raises(ObjectMissing):
        list(store.list("no-such-bucket-here"))
    assert not store.exists(settings.source_bucket, "none.pdf")
    store.remove(settings.source_bucket, "none.pdf")


def test_a_wrong_secret_is_no_outage(settings: Settings) -> None:
    wrong = ObjectStore.connect(Settings.load(**{**dict(settings), "s3_secret_key": "wrong-secret-here"}))
    with pytest.raises(AccessRefused, match="SignatureDoesNotMatch") as caught:
        wrong.get_bytes(settings.source_bucket, "a.pdf")
    assert "wrong-secret-here" not in str(caught.value)


def test_a_store_that_does_not_answer_is_an_outage(settings: Settings) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    away = ObjectStore.connect(settings.model_copy(update={"s3_endpoint": f"http://127.0.0.1:{free_port}"}))
    with pytest.raises(ServiceUnavailable, match=f"127.0.0.1:{free_port}") as caught:
        away.get_bytes(settings.source_bucket, "a.pdf")
    assert "refused" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_full_local_disk_is_not_called_an_outage(store: ObjectStore, settings: Settings) -> None:
    store.put_bytes(settings.source_bucket, "a.pdf", b"x")
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(IngestionError, match="local disk") as caught:
        store.download(settings.source_bucket, "a.pdf", full)
    assert not isinstance(caught.value, ServiceUnavailable)


def test_the_secret_is_not_shown(settings: Settings) -> None:
    assert settings.s3_secret_key.get_secret_value() not in repr(settings)
