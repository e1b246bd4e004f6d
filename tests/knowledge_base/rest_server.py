"""A small HTTP server that speaks the part of Qdrant's REST API we use, over qdrant-client's local mode in memory.

It lets the tests run the server path of the code (requests over a socket, HTTP errors, API key) where no Qdrant server
is, and records every request so that it can be checked against Qdrant's published OpenAPI schema.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models

API_KEY = "test-key"


@dataclass
class Recorded:
    """One request: its method, its path without the query string, and its JSON body (None for GET)."""

    method: str
    path: str
    body: Any


@dataclass
class RestServer:
    """The running server. `fail_with` makes every answer this HTTP status, `delay_s` slows each answer down."""

    url: str
    client: QdrantClient
    requests: list[Recorded] = field(default_factory=list)
    indexes: dict[str, Any] = field(default_factory=dict)
    snapshots: list[models.SnapshotDescription] = field(default_factory=list)
    fail_with: int | None = None
    delay_s: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def run_rest_server() -> Iterator[RestServer]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server = RestServer(f"http://127.0.0.1:{httpd.server_address[1]}", QdrantClient(":memory:"))
    httpd.state = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        httpd.shutdown()
        httpd.server_close()
        thread.join()
        server.client.close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        state: RestServer = self.server.state  # type: ignore[attr-defined]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0]
        body = json.loads(raw) if raw else None
        state.requests.append(Recorded(self.command, path, body))
        if state.delay_s:
            state.stop.wait(state.delay_s)
        if state.fail_with:
            return self._answer(state.fail_with, {"status": {"error": "asked to fail"}})
        if self.headers.get("api-key") != API_KEY:
            return self._answer(403, {"status": {"error": "forbidden"}})
        try:
            # local mode is not made for threads; a request is atomic here, as a batch of a single shard is
            with state.lock:
                result = self._result(state, f"{self.command} {path}", body)
        except ValueError as error:
            status = 404 if "not found" in str(error) else 409 if "already exists" in str(error) else 400
            return self._answer(status, {"status": {"error": str(error)}})
        plain = json.loads(TypeAdapter(Any).dump_json(result))
        return self._answer(200, {"result": plain, "status": "ok", "time": 0.0})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _result(self, state: RestServer, call: str, body: Any) -> Any:
        client = state.client
        if call == "GET /aliases":
            return client.get_aliases()
        if call == "POST /collections/aliases":
            operations = models.ChangeAliasesOperation(**body).actions
            return client.update_collection_aliases(operations)
        if call == "GET /collections":
            return client.get_collections()
        match = re.fullmatch(r"(GET|PUT|POST|DELETE) /collections/([^/]+)(/[a-z/]+)?", call)
        if match is None:
            raise ValueError(f"this server has no {call}")
        name, action = match[2], f"{match[1]} {match[3] or ''}".strip()
        return getattr(self, _ACTIONS[action])(state, name, body)

    def exists(self, state: RestServer, name: str, _: Any) -> Any:
        return {"exists": state.client.collection_exists(name)}

    def info(self, state: RestServer, name: str, _: Any) -> Any:
        schema = {
            field_name: models.PayloadIndexInfo(data_type=params["type"], points=0)
            for field_name, params in state.indexes.items()
        }
        return state.client.get_collection(name).model_copy(update={"payload_schema": schema})

    def create(self, state: RestServer, name: str, body: Any) -> Any:
        wanted = models.CreateCollection(**body)
        return state.client.create_collection(
            name,
            vectors_config=wanted.vectors,
            sparse_vectors_config=wanted.sparse_vectors,
            metadata=wanted.metadata,
        )

    def drop(self, state: RestServer, name: str, _: Any) -> Any:
        return state.client.delete_collection(name)

    def snapshot(self, state: RestServer, name: str, _: Any) -> Any:
        # local mode has none: what the server would answer
        assert state.client.collection_exists(name)
        made = models.SnapshotDescription(name=f"{name}-{len(state.snapshots)}.snapshot", size=1)
        state.snapshots.append(made)
        return made

    def snapshots(self, state: RestServer, name: str, _: Any) -> Any:
        return [made for made in state.snapshots if made.name.startswith(f"{name}-")]

    def index(self, state: RestServer, name: str, body: Any) -> Any:
        assert state.client.collection_exists(name)
        state.indexes[body["field_name"]] = body["field_schema"]
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)

    def upsert(self, state: RestServer, name: str, body: Any) -> Any:
        wanted = models.PointsList(**body)
        return state.client.upsert(name, wanted.points, update_mode=wanted.update_mode)

    def update_batch(self, state: RestServer, name: str, body: Any) -> Any:
        return state.client.batch_update_points(name, models.UpdateOperations(**body).operations)

    def count(self, state: RestServer, name: str, body: Any) -> Any:
        return state.client.count(name, count_filter=_filter(body.get("filter")))

    def delete(self, state: RestServer, name: str, body: Any) -> Any:
        return state.client.delete(name, models.FilterSelector(**body))

    def scroll(self, state: RestServer, name: str, body: Any) -> Any:
        points, offset = state.client.scroll(
            name, scroll_filter=_filter(body["filter"]), limit=body["limit"], offset=body.get("offset"),
            with_payload=body["with_payload"],
        )  # fmt: skip
        return {"points": points, "next_page_offset": offset}

    def query_batch(self, state: RestServer, name: str, body: Any) -> Any:
        return state.client.query_batch_points(name, models.QueryRequestBatch(**body).searches)


_ACTIONS = {
    "GET /exists": "exists",
    "GET": "info",
    "PUT": "create",
    "DELETE": "drop",
    "POST /snapshots": "snapshot",
    "GET /snapshots": "snapshots",
    "PUT /index": "index",
    "PUT /points": "upsert",
    "POST /points/batch": "update_batch",
    "POST /points/count": "count",
    "POST /points/delete": "delete",
    "POST /points/scroll": "scroll",
    "POST /points/query/batch": "query_batch",
}


def _filter(body: dict[str, Any] | None) -> models.Filter | None:
    return None if body is None else models.Filter(**body)
