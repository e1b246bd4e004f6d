from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from knowledge_base.embedding import Embedder
from knowledge_base.errors import (
    CollectionMismatch,
    KnowledgeBaseError,
    KnowledgeBaseUnavailable,
    LoadIncomplete,
)
from knowledge_base.payload import point_id
from knowledge_base.search import search
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase, LoadReport, QdrantOptions, open_knowledge_base
from tests.knowledge_base.builders import Loader, make_chunk, make_chunks, make_revision

OLD = "a" * 64
NEW = "b" * 64


def snapshot(knowledge_base: KnowledgeBase) -> dict[str, Any]:
    """Every point: id to payload and vectors, rounded because local mode normalises again on each write."""
    records, rest = knowledge_base.client.scroll("manuals", limit=10_000, with_payload=True, with_vectors=True)
    assert rest is None
    return {
        str(record.id): (
            record.payload,
            np.round(record.vector["dense"], 5).tolist(),
            record.vector["sparse"].model_dump(),
        )
        for record in records
    }


def test_payload_is_what_langchain_reads(knowledge_base: KnowledgeBase, load: Loader) -> None:
    revision = make_revision()
    load(knowledge_base, revision, [make_chunk(0, "Close the valve.", section_path=["1 Start", "1.1 Off"])])
    ((ident, (payload, *_)),) = snapshot(knowledge_base).items()
    assert ident == point_id(revision, 0) == "06a745da-e2aa-5209-aa6d-ec4145f62a11"
    assert payload == {
        "page_content": "Close the valve.",
        "metadata": {
            "source": "manuals/pump.pdf",
            "title": "Pump",
            "section_path": ["1 Start", "1.1 Off"],
            "pages": [1],
            "boxes": [{"page_number": 1, "bbox_norm": [10.0, 20.0, 30.0, 40.0]}],
            "labels": ["text"],
            "revision": OLD,
            "fingerprint": "f1",
            "chunk_index": 0,
            "language": "en",
            "tenant": "default",
            "ingested_at": "2026-05-01T12:00:00+00:00",
        },
    }


def test_loading_again_changes_nothing(knowledge_base: KnowledgeBase, load: Loader) -> None:
    chunks = make_chunks("one", "two", "three")
    first = load(knowledge_base, make_revision(), chunks)
    before = snapshot(knowledge_base)
    later = make_revision(ingested_at="2027-01-01T00:00:00+00:00")
    second = load(knowledge_base, later, chunks)

    assert first == LoadReport(written=3, deleted=0, unchanged=0, point_count=3)
    assert second == LoadReport(written=0, deleted=0, unchanged=3, point_count=3)
    assert snapshot(knowledge_base) == before


def test_a_new_revision_replaces_the_old_one(knowledge_base: KnowledgeBase, load: Loader) -> None:
    load(knowledge_base, make_revision(), make_chunks("old one", "old two", "old three"))
    old_ids = knowledge_base.point_ids("manuals/pump.pdf")
    report = load(knowledge_base, make_revision(revision=NEW), make_chunks("new one", "old two"))

    assert report == LoadReport(written=2, deleted=3, unchanged=0, point_count=2)
    assert knowledge_base.count("manuals/pump.pdf", revision=OLD) == 0
    assert knowledge_base.count("manuals/pump.pdf", revision=NEW) == 2
    assert not set(old_ids) & set(knowledge_base.point_ids("manuals/pump.pdf"))


def test_the_same_revision_cut_anew_and_shorter_leaves_nothing_behind(
    knowledge_base: KnowledgeBase, load: Loader
) -> None:
    load(knowledge_base, make_revision(), make_chunks("one", "two", "three", "four", "five"))
    report = load(knowledge_base, make_revision(fingerprint="f2"), make_chunks("one two", "three four five"))
    assert report == LoadReport(written=2, deleted=5, unchanged=0, point_count=2)
    texts = [payload["page_content"] for payload, *_ in snapshot(knowledge_base).values()]
    assert sorted(texts) == ["one two", "three four five"]


def test_ordinals_beyond_the_last_chunk_go_even_within_one_fingerprint(
    knowledge_base: KnowledgeBase, load: Loader
) -> None:
    load(knowledge_base, make_revision(), make_chunks("one", "two", "three"))
    report = load(knowledge_base, make_revision(), make_chunks("one", "two"))
    assert report == LoadReport(written=0, deleted=1, unchanged=2, point_count=2)
    assert knowledge_base.count("manuals/pump.pdf") == 2


def test_same_bytes_under_two_keys_are_two_sources(knowledge_base: KnowledgeBase, load: Loader) -> None:
    chunks = make_chunks("one", "two")
    load(knowledge_base, make_revision("manuals/a.pdf"), chunks)
    load(knowledge_base, make_revision("manuals/b.pdf"), chunks)
    assert knowledge_base.count() == 4
    assert knowledge_base.delete_source("manuals/a.pdf") == 2
    assert knowledge_base.delete_source("manuals/a.pdf") == 0
    assert knowledge_base.count("manuals/b.pdf") == 2


def test_tenants_do_not_touch_each_other(knowledge_base: KnowledgeBase, load: Loader) -> None:
    load(knowledge_base, make_revision(tenant="red"), make_chunks("one", "two"))
    load(knowledge_base, make_revision(tenant="blue", revision=NEW), make_chunks("one"))
    assert knowledge_base.count(tenant=None) == 3
    assert knowledge_base.count("manuals/pump.pdf", tenant="red") == 2
    assert knowledge_base.delete_source("manuals/pump.pdf", tenant="blue") == 1
    assert knowledge_base.count("manuals/pump.pdf", tenant="red") == 2


def test_ids_differ_by_every_part() -> None:
    revisions = [
        make_revision(),
        make_revision("manuals/other.pdf"),
        make_revision(tenant="red"),
        make_revision(revision=NEW),
        make_revision(fingerprint="f2"),
        make_revision("a", tenant="bc"),
        make_revision("ab", tenant="c"),
    ]
    assert len({point_id(revision, 0) for revision in revisions} | {point_id(revisions[0], 1)}) == 8


class CrashError(Exception):
    pass


@pytest.mark.parametrize("step", ["second batch", "count", "switch"])
def test_a_crash_at_any_step_then_a_retry_ends_in_the_same_points(
    step: str, knowledge_base: KnowledgeBase, load: Loader, embedder: Embedder, sparse_encoder: SparseEncoder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    new_chunks = make_chunks("new one", "new two", "new three")
    load(knowledge_base, make_revision(revision=NEW), new_chunks)
    expected = snapshot(knowledge_base)
    load(knowledge_base, make_revision(revision=OLD), make_chunks("old one", "old two", "old three", "old four"))

    client = knowledge_base.client
    calls = {"upsert": 0, "count": 0}

    def crash(*_: Any, **__: Any) -> None:
        raise CrashError

    def upsert(*args: Any, **kwargs: Any) -> Any:
        calls["upsert"] += 1
        if step == "second batch" and calls["upsert"] == 2:
            raise CrashError
        return type(client).upsert(client, *args, **kwargs)

    def count(*args: Any, **kwargs: Any) -> Any:
        calls["count"] += 1
        if step == "count" and calls["count"] == 2:
            raise CrashError
        return type(client).count(client, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(client, "upsert", upsert)
        patch.setattr(client, "count", count)
        if step == "switch":
            patch.setattr(client, "batch_update_points", crash)
        with pytest.raises(CrashError):
            load(knowledge_base, make_revision(revision=NEW), new_chunks)

    # readers still find the source, and nothing of the old revision is gone
    assert knowledge_base.count("manuals/pump.pdf", revision=OLD) == 4
    assert search(knowledge_base, embedder, sparse_encoder, "old two")
    load(knowledge_base, make_revision(revision=NEW), new_chunks)
    assert snapshot(knowledge_base) == expected


def test_a_wrong_count_deletes_nothing(
    knowledge_base: KnowledgeBase, load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(knowledge_base, make_revision(), make_chunks("old one", "old two"))
    client = knowledge_base.client

    def lose_one(name: str, points: list[Any], **kwargs: Any) -> Any:
        return type(client).upsert(client, name, points[:1], **kwargs)

    monkeypatch.setattr(client, "upsert", lose_one)
    with pytest.raises(LoadIncomplete, match=r"2 points of manuals/pump\.pdf were written but 1 are found"):
        load(knowledge_base, make_revision(revision=NEW), make_chunks("new one", "new two"))
    assert knowledge_base.count("manuals/pump.pdf", revision=OLD) == 2


def test_input_that_does_not_fit_together_is_refused(knowledge_base: KnowledgeBase, load: Loader) -> None:
    chunks = make_chunks("one", "two")
    dense, sparse = load.vectors(chunks)
    with pytest.raises(ValueError, match="delete the source instead"):
        knowledge_base.load_revision(make_revision(), [], dense[:0], [])
    with pytest.raises(ValueError, match="2 chunks with dense"):
        knowledge_base.load_revision(make_revision(), chunks, dense[:1], sparse)
    with pytest.raises(ValueError, match="chunk 0 has chunk_index 1"):
        knowledge_base.load_revision(make_revision(), chunks[1:], dense[1:], sparse[1:])
    with pytest.raises(ValueError, match="not finite"):
        knowledge_base.load_revision(make_revision(), chunks, np.full_like(dense, np.nan), sparse)
    assert knowledge_base.count() == 0


def test_points_survive_closing_and_opening(options: QdrantOptions, load: Loader, embedder: Embedder) -> None:
    for _ in range(2):
        with open_knowledge_base(options) as opened:
            assert opened.ensure_collection(embedder, load.sparse_encoder) == "manuals__1"
            load(opened, make_revision(), make_chunks("one"))
            assert opened.count("manuals/pump.pdf") == 1
    with open_knowledge_base(options) as opened:
        aliases = {each.alias_name: each.collection_name for each in opened.client.get_aliases().aliases}
        assert aliases == {"manuals": "manuals__1"}


class OtherEncoder:
    """An embedder of another model, as far as the collection can tell."""

    def __init__(self, like: Embedder, **changes: Any) -> None:
        self.dimension = int(changes.get("dimension", like.dimension))
        self._identity = like.identity() | changes

    def identity(self) -> dict[str, Any]:
        return self._identity


def test_vectors_of_another_model_are_refused(
    knowledge_base: KnowledgeBase, embedder: Embedder, sparse_encoder: SparseEncoder
) -> None:
    renamed = OtherEncoder(embedder, model="a-renamed-folder")
    knowledge_base.ensure_collection(renamed, sparse_encoder)
    retrained = OtherEncoder(embedder, weights="0" * 32)
    with pytest.raises(CollectionMismatch, match=r"dense weights: .* stored, '0{32}' offered.*re-embed"):
        knowledge_base.ensure_collection(retrained, sparse_encoder)
    with pytest.raises(CollectionMismatch, match="dense dimension: 384 stored, 1024 offered"):
        knowledge_base.ensure_collection(OtherEncoder(embedder, dimension=1024), sparse_encoder)
    with pytest.raises(CollectionMismatch, match=r"sparse k1: 1\.2 stored, 1\.5 offered"):
        knowledge_base.ensure_collection(embedder, SparseEncoder(k1=1.5))


def test_a_crash_between_collection_and_alias_is_made_good(
    options: QdrantOptions, embedder: Embedder, sparse_encoder: SparseEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_knowledge_base(options) as opened:
        with monkeypatch.context() as patch:
            patch.setattr(opened.client, "update_collection_aliases", lambda *_: (_ for _ in ()).throw(CrashError()))
            with pytest.raises(CrashError):
                opened.ensure_collection(embedder, sparse_encoder)
        assert not opened.has_collection()
        opened.ensure_collection(embedder, sparse_encoder)
        assert opened.count() == 0


def test_before_the_first_load_there_is_nothing(
    options: QdrantOptions, embedder: Embedder, sparse_encoder: SparseEncoder
) -> None:
    with open_knowledge_base(options) as opened:
        assert opened.count() == 0
        assert opened.point_ids("manuals/pump.pdf") == []
        assert opened.delete_source("manuals/pump.pdf") == 0
        with pytest.raises(KnowledgeBaseError, match="nothing has been loaded yet"):
            search(opened, embedder, sparse_encoder, "pump")


def test_a_second_process_waits_then_is_told_who_holds_the_store(options: QdrantOptions) -> None:
    code = (
        "import sys; from knowledge_base.store import *\n"
        "with open_knowledge_base(QdrantOptions(path=sys.argv[1])): print('open', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(options.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(KnowledgeBaseUnavailable, match=rf"is in use by process {holder.pid} \(-c\) on .*waited 0\.2 s"):
        open_knowledge_base(options)
    holder.communicate("", timeout=30)
    open_knowledge_base(options).close()


def test_a_killed_holder_leaves_no_lock(options: QdrantOptions) -> None:
    assert options.path is not None
    code = "import os, sys; from knowledge_base.store import *\nopen_knowledge_base(QdrantOptions(path=sys.argv[1])); "
    subprocess.run([sys.executable, "-c", code + "os._exit(9)", str(options.path)], check=False)
    assert json.loads((options.path / "ocr2kb.lock.json").read_text())["pid"]
    open_knowledge_base(options).close()
    assert not (options.path / "ocr2kb.lock.json").exists()


def test_a_place_that_cannot_be_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KnowledgeBaseError, match="cannot be made or locked"):
        open_knowledge_base(QdrantOptions(path=tmp_path / "file"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "meta.json").write_text("{")
    with pytest.raises(KnowledgeBaseError, match="cannot be opened"):
        open_knowledge_base(QdrantOptions(path=tmp_path / "broken", lock_timeout_s=0))
    (tmp_path / "broken" / "meta.json").unlink()
    open_knowledge_base(QdrantOptions(path=tmp_path / "broken", lock_timeout_s=0)).close()
    with pytest.raises(ValueError, match="either a path"):
        QdrantOptions()
