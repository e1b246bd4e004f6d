"""Talks to an OpenAI-compatible server: connections, retries, errors in words. What is said is in `served_request`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import httpx
import tenacity

from ocr2_core.errors import EngineError, EngineUnavailable
from ocr2_core.served_request import (
    Answer,
    Dialect,
    RequestFailed,
    ServedModel,
    ServedOptions,
    json_object,
    request_body,
    shortened,
    streamed_answer,
    whole_answer,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_WAIT_S = 120.0


class ServedClient:
    """One server. Safe to use from several threads; `stop` ends all waiting between tries."""

    def __init__(self, options: ServedOptions) -> None:
        self.options = options
        self.base_url = _with_api_path(options.base_url)
        self.shown_url = _without_user(self.base_url)
        headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
        timeout = httpx.Timeout(options.timeout_s, connect=min(options.timeout_s, 10.0))
        try:
            self._http = httpx.Client(base_url=self.base_url, headers=headers, timeout=timeout)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            what = "the URL is not valid" if isinstance(error, httpx.InvalidURL) else "the API key is not ASCII"
            raise EngineError(self.complaint(what)) from error
        self._stopped = threading.Event()

    def close(self) -> None:
        self.stop()
        self._http.close()

    def stop(self) -> None:
        self._stopped.set()

    def find_model(self) -> ServedModel:
        """Which server this is and what it serves.

        Raises EngineUnavailable when it does not answer, EngineError when it refuses the key or lacks the model.
        """
        try:
            answer = self._with_retries(self._models)
        except RequestFailed as error:
            kind = EngineUnavailable if error.is_service else EngineError
            raise kind(self.complaint(error.reason)) from error
        cards = [card for card in answer.get("data") or [] if isinstance(card, dict)]
        names = [str(card.get("id")) for card in cards]
        card = next((card for card in cards if card.get("id") == self.options.model), None)
        if card is None:
            served = ", ".join(names) or "none"
            raise EngineError(
                f"The endpoint {self.shown_url} does not serve the model {self.options.model!r}; it serves: {served}. "
                "Set OCR2KB_SERVED_MODEL to one of them."
            )
        dialect = Dialect.SGLANG if card.get("owned_by") == "sglang" else Dialect.VLLM
        if dialect is Dialect.SGLANG and not self.options.sglang_logit_processor:
            logger.warning("%s: no logit processor is set; this server will not stop loops early", self.shown_url)
        length = card.get("max_model_len")
        return ServedModel(dialect, length if isinstance(length, int) and length > 0 else None)

    def read(self, pngs: Sequence[bytes], model: ServedModel) -> Answer:
        """The model's text for these pages, in one request. Raises RequestFailed, EngineError."""
        body = request_body(pngs, model, self.options)
        return self._with_retries(lambda: self._stream(body))

    def complaint(self, reason: str) -> str:
        return f"The endpoint {self.shown_url} cannot be used: {reason}. Check OCR2KB_SERVED_URL and the server's log."

    def _with_retries(self, send: Callable[[], T]) -> T:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, RequestFailed) and error.is_service),
            stop=tenacity.stop_after_attempt(self.options.max_tries) | tenacity.stop_when_event_set(self._stopped),
            wait=_RetryAfterOrBackoff(self.options.backoff_s),
            sleep=tenacity.sleep_using_event(self._stopped),
            reraise=True,
        )
        return retrying(send)

    def _models(self) -> dict[str, Any]:
        with _failures_in_words():
            response = self._http.get("models")
        self._refuse_errors(response)
        return json_object(response.text)

    def _stream(self, body: dict[str, Any]) -> Answer:
        with _failures_in_words(), self._http.stream("POST", "chat/completions", json=body) as response:
            if response.status_code != 200 or "text/event-stream" not in response.headers.get("Content-Type", ""):
                response.read()
                self._refuse_errors(response)
                return whole_answer(json_object(response.text))
            return streamed_answer(self._until_stopped(response.iter_lines()))

    def _until_stopped(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if self._stopped.is_set():
                raise RequestFailed("reading was stopped", is_service=False)
            yield line

    def _refuse_errors(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            raise EngineError(
                f"The endpoint {self.shown_url} refused the API key (HTTP {status}). "
                "Set OCR2KB_SERVED_API_KEY to the key the server was started with."
            )
        if status == 404:
            raise EngineError(self.complaint(f"it has no {response.request.url.path} (HTTP 404: {_said(response)})"))
        if status != 200:
            raise RequestFailed(
                f"HTTP {status}: {_said(response)}",
                is_service=status in _RETRIED_STATUSES or status >= 500,
                retry_after_s=_retry_after_s(response.headers.get("Retry-After")),
            )


@contextmanager
def _failures_in_words() -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    except httpx.TimeoutException as error:
        waited_s = time.perf_counter() - start
        raise RequestFailed(f"no answer in time ({waited_s:.0f} s waited in all)", is_service=True) from error
    except httpx.TransportError as error:
        raise RequestFailed(f"the connection failed ({error or type(error).__name__})", is_service=True) from error


class _RetryAfterOrBackoff(tenacity.wait.wait_base):
    """What the server asked for, else exponential backoff with jitter."""

    def __init__(self, first_wait_s: float) -> None:
        self._backoff = tenacity.wait_exponential(multiplier=first_wait_s, max=30.0) + tenacity.wait_random(
            0, first_wait_s
        )

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        logger.warning("try %d failed: %s", retry_state.attempt_number, error)
        if isinstance(error, RequestFailed) and error.retry_after_s is not None:
            return min(error.retry_after_s, _LONGEST_WAIT_S)
        return self._backoff(retry_state)


def _said(response: httpx.Response) -> str:
    try:
        payload = response.json()
    except ValueError:
        payload = response.text
    said = payload.get("error", payload) if isinstance(payload, dict) else payload
    return shortened(said) or response.reason_phrase


def _retry_after_s(value: str | None) -> float | None:
    """Seconds to wait by a Retry-After header: a number or an HTTP date; None where it says neither."""
    if not value:
        return None
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


def _with_api_path(url: str) -> str:
    parts = urlsplit(url.rstrip("/"))
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise EngineError(
            f"{_without_user(url)!r} is not the URL of an endpoint. Set OCR2KB_SERVED_URL to one such as "
            "http://127.0.0.1:8000/v1."
        )
    return urlunsplit((parts.scheme, parts.netloc, parts.path or "/v1", "", ""))


def _without_user(url: str) -> str:
    """The URL without a user name and password."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
