"""A small server on a real socket that speaks the protocol of vLLM and SGLang, and misbehaves as told.

It reads the page number off the image itself (`page_image` writes it there), so that an answer shows which images were
really sent and in which order.
"""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

from ocr2_core.engine import PageImage

API_KEY = "secret-key"


@dataclass(frozen=True)
class Reply:
    """What the server sends back: an answer of the model, or (with `raw`) any bytes with any status."""

    text: str = ""
    finish_reason: str | None = "stop"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    delay_s: float = 0.0
    content_type: str = "application/json"
    pause_s: float = 0.0

    def events(self) -> Iterator[bytes]:
        """The answer in pieces, as server-sent events; without a finish reason it breaks off."""
        for start in range(0, len(self.text), 9):
            yield _event({"choices": [{"index": 0, "delta": {"content": self.text[start : start + 9]}}]})
        if self.finish_reason is not None:
            yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish_reason}]})
            yield _event({"choices": [], "usage": {"completion_tokens": len(self.text.split())}})
            yield b"data: [DONE]\n\n"

    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        if self.status != 200:
            return json.dumps({"error": {"message": self.text, "type": "error", "code": self.status}}).encode()
        choice = {"index": 0, "finish_reason": self.finish_reason, "message": {"content": self.text}}
        usage = {"prompt_tokens": 300, "completion_tokens": len(self.text.split())}
        return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def section(page_number: int, words: str = "words") -> str:
    """What the model writes for one page."""
    return f"<|det|>text [10, 20, 900, 300]<|/det|>{words} of page {page_number}"


def well_read(pages: list[int], _try: int) -> Reply:
    """The answer of a model that works: markers before each page of a group, none for a single page."""
    if len(pages) == 1:
        return Reply(section(pages[0]))
    return Reply("".join(f"<PAGE>{section(page)}" for page in pages))


@dataclass
class Served:
    """The running server. `reply` is asked with the page numbers of a request and how often it came before."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    pages: list[list[int]] = field(default_factory=list)
    reply: Callable[[list[int], int], Reply] = well_read
    owned_by: str = "vllm"
    models: Reply | None = None
    context_tokens: int | None = 32768
    is_streaming: bool = True
    most_at_once: int = 0
    at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(BaseHTTPRequestHandler):
    served: Served

    def do_GET(self) -> None:
        served = self.served
        card = {"id": "baidu/Unlimited-OCR", "owned_by": served.owned_by, "max_model_len": served.context_tokens}
        ready = Reply(raw=json.dumps({"object": "list", "data": [card]}).encode())
        self._send(served.models or ready if self.path == "/v1/models" else Reply("no such path", status=404))

    def do_POST(self) -> None:
        served = self.served
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        images = [part["image_url"]["url"] for part in body["messages"][0]["content"] if part["type"] == "image_url"]
        pages = [page_number_of(base64.b64decode(url.removeprefix("data:image/png;base64,"))) for url in images]
        with served.lock:
            tries = served.pages.count(pages)
            served.requests.append(body)
            served.pages.append(pages)
            served.at_once += 1
            served.most_at_once = max(served.most_at_once, served.at_once)
        try:
            reply = served.reply(pages, tries)
            is_answer = reply.status == 200 and reply.raw is None
            if is_answer and served.is_streaming and body["stream"] and self._is_allowed():
                self._stream(reply)
            else:
                self._send(reply)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client left
        finally:
            with served.lock:
                served.at_once -= 1

    def _send(self, reply: Reply) -> None:
        if not self._is_allowed():
            reply = Reply("Unauthorized", status=401)
        time.sleep(reply.delay_s)
        body = reply.body()
        self.send_response(reply.status)
        for name, value in {"Content-Type": reply.content_type, **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, reply: Reply) -> None:
        time.sleep(reply.delay_s)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in reply.events():
            self.wfile.write(event)
            time.sleep(reply.pause_s)

    def _is_allowed(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {API_KEY}"

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_server() -> Iterator[Served]:
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.served = served = Served(f"http://127.0.0.1:{server.server_address[1]}/v1")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


def page_image(page_index: int) -> PageImage:
    """A page 300 by 200 px that carries its number in its gray level."""
    return PageImage(page_index, np.full((300, 200), page_index + 1, np.uint8), dpi=72.0, page_label=f"p{page_index}")


def page_number_of(png: bytes) -> int:
    return int(np.asarray(Image.open(io.BytesIO(png)).convert("L"))[0, 0])
