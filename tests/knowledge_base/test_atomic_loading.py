"""Loads are atomic to readers: with crashes at any request, two loads at once, a reader all the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from knowledge_base import store
from knowledge_base.errors import LoadIncomplete
from knowledge_base.search import search
from knowledge_base.store import KnowledgeBase, QdrantOptions, open_knowledge_base
from tests.knowledge_base.builders import Loader, make_chunks, make_revision
from tests.knowledge_base.rest_server import API_KEY, run_rest_server

SOURCE = "manuals/pump.pdf"
OLD, NEW, NEWEST = "a" * 64, "b" * 64, "c" * 64
OLD_TEXTS = ["old valve one", "old valve two", "old valve three", "old valve four"]
NEW_TEXTS = ["new valve one", "new valve two", "new valve three"]
WRITES = ("upsert", "batch_update_points")
CALLS = (*WRITES, "count", "collection_exists")


class CrashError(Exception):
    pass


@pytest.fixture
def shown(knowledge_base: KnowledgeBase, load: Loader) -> Callable[[], list[str]]:
    """The texts that a search finds."""
    return lambda: texts(knowledge_base, load)


def texts(knowledge_base: KnowledgeBase, load: Loader) -> list[str]:
    hits = search(knowledge_base, load.embedder, load.sparse_encoder, "valve", k=20)
    return sorted(hit.text for hit in hits)


def before_call(patch: pytest.MonkeyPatch, client: Any, name: str, action: Callable[[], None]) -> None:
    """Run `action` before every call of a method of the client."""
    original = getattr(client, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        action()
        return original(*args, **kwargs)

    patch.setattr(client, name, called)


def test_a_crash_at_every_request_shows_whole_revisions_and_a_retry_ends_the_same(
    knowledge_base: KnowledgeBase, load: Loader, shown: Callable[[], list[str]]
) -> None:
    old, new = make_chunks(*OLD_TEXTS), make_chunks(*NEW_TEXTS)
    load(knowledge_base, make_revision(revision=NEW), new)
    expected = knowledge_base.point_ids(SOURCE)
    crashed = 0
    while True:
        load(knowledge_base, make_revision(revision=OLD), old)
        calls = 0

        def count_down() -> None:
            nonlocal calls
            if calls == crashed:  # noqa: B023
                raise CrashError
            calls += 1

        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                before_call(patch, knowledge_base.client, name, count_down)
            try:
                load(knowledge_base, make_revision(revision=NEW), new)
                break
            except CrashError:
                pass
        is_switched = crashed == 7  # the last request only counts
        assert shown() == sorted(NEW_TEXTS if is_switched else OLD_TEXTS)
        load(knowledge_base, make_revision(revision=NEW), new)
        assert shown() == sorted(NEW_TEXTS)
        assert knowledge_base.point_ids(SOURCE) == expected
        crashed += 1
    # exists, count, two batches, count, count of the old ones, the switch, count
    assert crashed == 8


@pytest.mark.parametrize("moment", WRITES)
def test_of_two_loads_at_once_the_last_to_end_stays(
    moment: str, knowledge_base: KnowledgeBase, load: Loader, shown: Callable[[], list[str]]
) -> None:
    load(knowledge_base, make_revision(revision=OLD), make_chunks(*OLD_TEXTS))
    other = make_chunks("newest valve one", "newest valve two")
    seen: list[list[str]] = []

    def load_other() -> None:
        if not seen:
            seen.append(shown())
            load(knowledge_base, make_revision(revision=NEWEST), other)
            seen.append(shown())

    with pytest.MonkeyPatch.context() as patch:
        before_call(patch, knowledge_base.client, moment, load_other)
        load(knowledge_base, make_revision(revision=NEW), make_chunks(*NEW_TEXTS))
    assert seen == [sorted(OLD_TEXTS), ["newest valve one", "newest valve two"]]
    assert shown() == sorted(NEW_TEXTS)
    assert len(knowledge_base.point_ids(SOURCE)) == 3


@pytest.mark.parametrize("moment", WRITES)
def test_the_same_revision_loaded_twice_at_once_is_never_hidden(
    moment: str, knowledge_base: KnowledgeBase, load: Loader, shown: Callable[[], list[str]]
) -> None:
    chunks = make_chunks(*NEW_TEXTS)
    seen: list[list[str]] = []
    is_inside = False

    def load_too() -> None:
        nonlocal is_inside
        if is_inside:
            return
        is_inside = True
        load(knowledge_base, make_revision(revision=NEW), chunks)
        seen.append(shown())

    with pytest.MonkeyPatch.context() as patch:
        before_call(patch, knowledge_base.client, moment, load_too)
        load(knowledge_base, make_revision(revision=NEW), chunks)
        seen.append(shown())
    assert seen == [sorted(NEW_TEXTS)] * 2
    assert len(knowledge_base.point_ids(SOURCE)) == 3


def test_a_load_that_finds_its_points_gone_says_so(
    knowledge_base: KnowledgeBase, load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_call(monkeypatch, knowledge_base.client, "batch_update_points", lambda: _drop(knowledge_base))
    with pytest.raises(LoadIncomplete, match=r"0 of 3 points of manuals/pump\.pdf are shown"):
        load(knowledge_base, make_revision(revision=NEW), make_chunks(*NEW_TEXTS))


def _drop(knowledge_base: KnowledgeBase) -> None:
    knowledge_base.delete_source(SOURCE)


def test_what_a_dead_load_left_goes_with_a_later_load_once_it_is_old(
    knowledge_base: KnowledgeBase, load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash() -> None:
        raise CrashError

    with pytest.MonkeyPatch.context() as patch:
        before_call(patch, knowledge_base.client, "batch_update_points", crash)
        with pytest.raises(CrashError):
            load(knowledge_base, make_revision(revision=OLD), make_chunks(*OLD_TEXTS))
    load(knowledge_base, make_revision(revision=NEW), make_chunks(*NEW_TEXTS))
    assert len(knowledge_base.point_ids(SOURCE)) == 7
    assert knowledge_base.count(SOURCE) == 3

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(hours=7)

    monkeypatch.setattr(store, "datetime", Later)
    report = load(knowledge_base, make_revision(revision=NEW), make_chunks(*NEW_TEXTS))
    assert (report.written, report.deleted, report.unchanged) == (0, 4, 3)
    assert len(knowledge_base.point_ids(SOURCE)) == 3


def test_a_finished_load_leaves_no_mark(knowledge_base: KnowledgeBase, load: Loader) -> None:
    load(knowledge_base, make_revision(), make_chunks("valve"))
    ((record,), _) = knowledge_base.client.scroll("manuals", with_payload=True)
    assert sorted(record.payload or {}) == ["metadata", "page_content"]


@pytest.fixture
def served() -> Iterator[QdrantOptions]:
    with run_rest_server() as server:
        yield QdrantOptions(url=server.url, api_key=API_KEY, upload_batch_size=1)


def test_a_reader_beside_many_loads_over_http_never_sees_both_or_neither(served: QdrantOptions, load: Loader) -> None:
    revisions = {OLD: sorted(OLD_TEXTS), NEW: sorted(NEW_TEXTS)}
    load.vectors(make_chunks(*OLD_TEXTS, *NEW_TEXTS))
    seen: list[list[str]] = []
    is_done = threading.Event()

    def read() -> None:
        with open_knowledge_base(served) as reader:
            while not is_done.is_set():
                seen.append(texts(reader, load))

    with open_knowledge_base(served) as writer:
        writer.ensure_collection(load.embedder, load.sparse_encoder)
        load(writer, make_revision(revision=OLD), make_chunks(*OLD_TEXTS))
        thread = threading.Thread(target=read)
        thread.start()
        for number in range(12):
            revision = (NEW, OLD)[number % 2]
            load(writer, make_revision(revision=revision), make_chunks(*revisions[revision]))
        is_done.set()
        thread.join()
    assert {tuple(each) for each in seen} <= {tuple(each) for each in revisions.values()}
    assert len(seen) > 5
