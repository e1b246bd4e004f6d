"""The server path over real HTTP: schema, loading, searching, and each kind of failure."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from knowledge_base.errors import KnowledgeBaseError, KnowledgeBaseUnavailable
from knowledge_base.generations import (
    drop_collection,
    ensure_target,
    list_collections,
    live_collection,
    switch_alias,
)
from knowledge_base.search import SearchFilters, search
from knowledge_base.snapshots import list_snapshots, take_snapshot
from knowledge_base.store import KnowledgeBase, LoadReport, QdrantOptions, open_knowledge_base
from tests.knowledge_base.builders import Loader, make_chunks, make_revision
from tests.knowledge_base.rest_server import API_KEY, Recorded, RestServer, run_rest_server

# the tests' server has no TLS
pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")


@pytest.fixture
def server() -> Iterator[RestServer]:
    with run_rest_server() as running:
        yield running


@pytest.fixture
def remote(server: RestServer) -> Iterator[KnowledgeBase]:
    with open_knowledge_base(options(server.url)) as opened:
        yield opened


def options(url: str, **changes: Any) -> QdrantOptions:
    fields: dict[str, Any] = {"url": url, "api_key": API_KEY, "timeout_s": 5, "upload_batch_size": 2}
    return QdrantOptions(**(fields | changes))


def use_everything(remote: KnowledgeBase, load: Loader) -> None:
    """Every kind of request that the package sends."""
    assert remote.ensure_collection(load.embedder, load.sparse_encoder) == "manuals__1"
    assert remote.ensure_collection(load.embedder, load.sparse_encoder) == "manuals__1"
    first = load(remote, make_revision(), make_chunks("open the valve", "close the valve", "drain the oil"))
    assert first == LoadReport(written=3, deleted=0, unchanged=0, point_count=3)
    again = load(remote, make_revision(), make_chunks("open the valve", "close the valve", "drain the oil"))
    assert again == LoadReport(written=0, deleted=0, unchanged=3, point_count=3)
    second = load(remote, make_revision(revision="b" * 64), make_chunks("open the red valve"))
    assert second == LoadReport(written=1, deleted=3, unchanged=0, point_count=1)
    assert remote.count("manuals/pump.pdf") == 1
    assert len(remote.point_ids("manuals/pump.pdf")) == 1
    every_filter = SearchFilters(
        source=("manuals/pump.pdf", "x"), pages=(1, 2), language="en", labels="text", section="1 St"
    )
    for mode in ("hybrid", "dense", "sparse"):
        for filters in (None, every_filter):
            (hit,) = search(
                remote, load.embedder, load.sparse_encoder, "valve", mode=mode, filters=filters, with_ranks=True
            )
            assert hit.text == "open the red valve"
    change_collections(remote, load)
    assert remote.delete_source("manuals/pump.pdf") == 1
    assert remote.count() == 0


class OtherModel:
    """What a collection has to know of another embedding model."""

    dimension = 3

    def identity(self) -> dict[str, Any]:
        return {"model": "other", "weights": "0", "dimension": 3}


def change_collections(remote: KnowledgeBase, load: Loader) -> None:
    """To another model's collection and back."""
    assert ensure_target(remote, load.embedder, load.sparse_encoder) == "manuals__1"
    assert ensure_target(remote, OtherModel(), load.sparse_encoder) == "manuals__2"
    assert ensure_target(remote, OtherModel(), load.sparse_encoder) == "manuals__2"
    assert take_snapshot(remote) == "manuals__1/manuals__1-0.snapshot"
    assert list_snapshots(remote) == ["manuals__1/manuals__1-0.snapshot"]
    switch_alias(remote, "manuals__2")
    assert live_collection(remote) == "manuals__2"
    assert [(each.name, each.is_live, each.point_count) for each in list_collections(remote)] == [
        ("manuals__1", False, 1),
        ("manuals__2", True, 0),
    ]
    with pytest.raises(KnowledgeBaseError, match="manuals__2 is live"):
        drop_collection(remote, "manuals__2")
    switch_alias(remote, "manuals__1")
    drop_collection(remote, "manuals__2")
    with pytest.raises(KnowledgeBaseError, match="has no collection manuals__2"):
        switch_alias(remote, "manuals__2")
    assert remote.sources() == {("default", "manuals/pump.pdf")}


def test_the_same_code_runs_against_a_server(remote: KnowledgeBase, server: RestServer, load: Loader) -> None:
    use_everything(remote, load)
    created, _ = [request.body for request in server.requests if request.method == "PUT" and "vectors" in request.body]
    assert created["sparse_vectors"] == {"sparse": {"index": {"on_disk": False}, "modifier": "idf"}}
    assert created["vectors"] == {"dense": {"size": 384, "distance": "Cosine", "on_disk": False}}
    assert created["metadata"]["dense"]["model"] == "all-MiniLM-L6-v2"
    assert server.indexes["metadata.tenant"] == {"type": "keyword", "is_tenant": True}
    assert server.indexes["loading_since"] == {"type": "datetime"}
    assert sorted(server.indexes) == [
        "loading_since",
        "metadata.chunk_index",
        "metadata.fingerprint",
        "metadata.labels",
        "metadata.language",
        "metadata.pages",
        "metadata.revision",
        "metadata.section_path",
        "metadata.source",
        "metadata.tenant",
    ]  # fmt: skip


def test_each_payload_index_is_asked_for_once(remote: KnowledgeBase, server: RestServer, load: Loader) -> None:
    use_everything(remote, load)
    asked = [request.body["field_name"] for request in server.requests if request.path.endswith("/index")]
    assert len(asked) == len(set(asked)) == 10


def test_scale_settings_reach_the_server_and_quantized_vectors_are_rescored(server: RestServer, load: Loader) -> None:
    scaled = options(
        server.url,
        vectors_on_disk=True,
        quantization="int8",
        oversampling=3.0,
        shard_count=4,
        replication_factor=2,
        write_consistency_factor=2,
    )
    with open_knowledge_base(scaled) as remote:
        remote.ensure_collection(load.embedder, load.sparse_encoder)
        load(remote, make_revision(), make_chunks("open the valve"))
        assert len(search(remote, load.embedder, load.sparse_encoder, "valve")) == 1
        assert len(search(remote, load.embedder, load.sparse_encoder, "valve", mode="dense")) == 1
    (created,) = [request.body for request in server.requests if request.method == "PUT" and "vectors" in request.body]
    assert created["vectors"]["dense"]["on_disk"] is True
    assert created["quantization_config"] == {"scalar": {"type": "int8", "quantile": 0.99, "always_ram": True}}
    assert (created["shard_number"], created["replication_factor"], created["write_consistency_factor"]) == (4, 2, 2)
    hybrid, dense = [request.body["searches"][0] for request in server.requests if request.path.endswith("query/batch")]
    rescored = {"quantization": {"rescore": True, "oversampling": 3.0}}
    assert [each.get("params") for each in hybrid["prefetch"]] == [rescored, None]
    assert dense["params"] == rescored
    check_openapi(server)


def check_openapi(server: RestServer) -> None:
    """Every recorded request is valid, where the schema is at hand."""
    if "QDRANT_OPENAPI" in os.environ:
        openapi = json.loads(Path(os.environ["QDRANT_OPENAPI"]).read_text())
        assert [problem for request in server.requests for problem in violations(openapi, request)] == []


def test_hybrid_search_is_one_request_with_the_filter_in_each_prefetch(
    remote: KnowledgeBase, server: RestServer, load: Loader
) -> None:
    remote.ensure_collection(load.embedder, load.sparse_encoder)
    load(remote, make_revision(), make_chunks("open the valve"))
    server.requests.clear()
    search(remote, load.embedder, load.sparse_encoder, "valve", filters=SearchFilters(language="en"))
    (query,) = [request.body for request in server.requests if request.path.endswith("/query/batch")]
    (fused,) = query["searches"]
    assert fused["query"] == {"rrf": {"k": 6, "weights": [1.0, 1.5]}}
    assert [each["using"] for each in fused["prefetch"]] == ["dense", "sparse"]
    for each in fused["prefetch"]:
        first, *others = each["filter"]["must"]
        assert first == {"is_empty": {"key": "loading_since"}}
        assert [condition["key"] for condition in others] == ["metadata.tenant", "metadata.language"]


def test_a_closed_port_is_unavailable(load: Loader) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with open_knowledge_base(options(url)) as remote:
        for call in (
            lambda: remote.ensure_collection(load.embedder, load.sparse_encoder),
            lambda: remote.count(),
            lambda: load(remote, make_revision(), make_chunks("one")),
            lambda: search(remote, load.embedder, load.sparse_encoder, "one"),
        ):
            with pytest.raises(KnowledgeBaseUnavailable, match=rf"cannot reach Qdrant at {url}"):
                call()


def test_an_unreachable_grpc_port_is_unavailable(server: RestServer) -> None:
    with (
        open_knowledge_base(options(server.url, prefer_grpc=True, timeout_s=1)) as remote,
        pytest.raises(KnowledgeBaseUnavailable),
    ):
        remote.count()


def test_a_timeout_is_unavailable(server: RestServer) -> None:
    server.delay_s = 30
    with (
        open_knowledge_base(options(server.url, timeout_s=1)) as remote,
        pytest.raises(KnowledgeBaseUnavailable, match="timed out"),
    ):
        remote.count()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_unavailable(status: int, remote: KnowledgeBase, server: RestServer) -> None:
    server.fail_with = status
    with pytest.raises(KnowledgeBaseUnavailable):
        remote.count()


def test_a_wrong_api_key_is_no_outage_and_not_shown(server: RestServer) -> None:
    with (
        open_knowledge_base(options(server.url, api_key="wrong-secret")) as remote,
        pytest.raises(KnowledgeBaseError, match="refuses the API key") as caught,
    ):
        remote.count()
    assert not isinstance(caught.value, KnowledgeBaseUnavailable)
    assert "wrong-secret" not in str(caught.value) + repr(remote.options)


@pytest.mark.skipif("QDRANT_OPENAPI" not in os.environ, reason="QDRANT_OPENAPI names no OpenAPI file of Qdrant")
def test_every_request_is_valid_by_qdrants_openapi(remote: KnowledgeBase, server: RestServer, load: Loader) -> None:
    openapi = json.loads(Path(os.environ["QDRANT_OPENAPI"]).read_text())
    use_everything(remote, load)
    problems = [problem for request in server.requests for problem in violations(openapi, request)]
    assert len({request.path for request in server.requests}) == 18
    assert violations(openapi, Recorded("POST", "/collections/x/points/count", {"exact": "no"})) != []
    assert problems == []


def violations(openapi: dict[str, Any], request: Recorded) -> list[str]:
    template = re.sub(r"^/collections/(?!aliases$)[^/]+", "/collections/{collection_name}", request.path)
    operation = openapi["paths"].get(template, {}).get(request.method.lower())
    if operation is None:
        return [f"no operation {request.method} {template}"]
    if "requestBody" not in operation:
        return [] if request.body is None else [f"{template} takes no body"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator(_as_json_schema({**schema, "components": openapi["components"]}))
    return [f"{template}: {error.message[:300]}" for error in validator.iter_errors(request.body)]


def _as_json_schema(node: Any) -> Any:
    """OpenAPI 3.0 says `nullable` where JSON schema says `type: null`."""
    if isinstance(node, list):
        return [_as_json_schema(each) for each in node]
    if not isinstance(node, dict):
        return node
    plain = {key: _as_json_schema(value) for key, value in node.items() if key != "nullable"}
    if node.get("nullable") is True:
        return {"anyOf": [plain, {"type": "null"}]} if plain else {"type": "null"}
    return plain
