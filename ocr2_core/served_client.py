"""Asks an OpenAI-compatible server (vLLM or SGLang serving Unlimited-OCR) to read page images.

Request fields as the two servers want them (vLLM's recipe for baidu/Unlimited-OCR; the model's README and SGLang's
cookbook for SGLang): the exact prompt, one `<image>` in the text for each image on vLLM and none on SGLang, special
tokens kept in the answer, temperature 0, and the arguments of the server's no-repeat-n-gram logits processor, with the
tokens of table cells exempt so that equal table rows survive it.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import tenacity

from ocr2_core.errors import EngineError, EngineUnavailable

logger = logging.getLogger(__name__)

SINGLE_PAGE_PROMPT = "document parsing."
MULTI_PAGE_PROMPT = "Multi page parsing."

# the model's recipe; the window is in output tokens
NGRAM_SIZE = 35
SINGLE_PAGE_WINDOW = 128
MULTI_PAGE_WINDOW = 1024
# <td> and </td>
TABLE_CELL_TOKEN_IDS = (128821, 128822)
# what a page takes of the context: visual tokens in gundam mode at most, and in base mode
SINGLE_PAGE_TOKENS = 3800
GROUP_PAGE_TOKENS = 273
PROMPT_TOKENS = 16

_RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_WAIT_S = 120.0
_MAX_SHOWN_CHARACTERS = 300


class Dialect(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"


class RequestFailed(Exception):
    """The server did not answer this request usefully, for `reason`. Other pages may fare better.

    `is_service` is true where the server itself is in trouble (overload, errors of its own, no answer in time).
    """

    def __init__(self, reason: str, *, is_service: bool, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_service = is_service
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model wrote. `is_truncated`: it was cut off at the token limit."""

    text: str
    token_count: int
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What the server says of its model. `context_tokens` is None where it does not say."""

    dialect: Dialect
    context_tokens: int | None


@dataclass(frozen=True, slots=True)
class ServedOptions:
    """`base_url` up to and including `/v1` (added where the path is empty). `max_tokens_per_page` bounds the answer.

    `sglang_logit_processor` is the string that SGLang's `DeepseekOCRNoRepeatNGramLogitProcessor.to_str()` gives;
    without it an SGLang server does not keep the model from looping. `backoff_s` is the first wait between two tries.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 600.0
    max_tries: int = 5
    backoff_s: float = 1.0
    max_tokens_per_page: int = 8192
    sglang_logit_processor: str | None = field(default=None, repr=False)


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
            answer = self._with_retries(lambda: self._send("GET", "models"))
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
        return _answer(self._with_retries(lambda: self._send("POST", "chat/completions", body)))

    def complaint(self, reason: str) -> str:
        return f"The endpoint {self.shown_url} cannot be used: {reason}. Check OCR2KB_SERVED_URL and the server's log."

    def _with_retries(self, send: Any) -> dict[str, Any]:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, RequestFailed) and error.is_service),
            stop=tenacity.stop_after_attempt(self.options.max_tries) | tenacity.stop_when_event_set(self._stopped),
            wait=_RetryAfterOrBackoff(self.options.backoff_s),
            sleep=tenacity.sleep_using_event(self._stopped),
            reraise=True,
        )
        result: dict[str, Any] = retrying(send)
        return result

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        start = time.perf_counter()
        try:
            response = self._http.request(method, path, json=body)
        except httpx.TimeoutException as error:
            raise RequestFailed(
                f"no answer within {time.perf_counter() - start:.0f} s (the timeout)", is_service=True
            ) from error
        except httpx.TransportError as error:
            raise RequestFailed(f"the connection failed ({error or type(error).__name__})", is_service=True) from error
        if response.status_code in (401, 403):
            raise EngineError(
                f"The endpoint {self.shown_url} refused the API key (HTTP {response.status_code}). "
                "Set OCR2KB_SERVED_API_KEY to the key the server was started with."
            )
        if response.status_code == 404:
            raise EngineError(self.complaint(f"it has no {response.request.url.path} (HTTP 404: {_said(response)})"))
        if response.status_code != 200:
            raise RequestFailed(
                f"HTTP {response.status_code}: {_said(response)}",
                is_service=response.status_code in _RETRIED_STATUSES or response.status_code >= 500,
                retry_after_s=_retry_after_s(response.headers.get("Retry-After")),
            )
        try:
            answer = response.json()
        except ValueError as error:
            raise RequestFailed(f"the answer is not JSON but {response.text[:60]!r}", is_service=True) from error
        if not isinstance(answer, dict):
            raise RequestFailed(f"the answer is not a JSON object but {type(answer).__name__}", is_service=True)
        return answer


def request_body(pngs: Sequence[bytes], model: ServedModel, options: ServedOptions) -> dict[str, Any]:
    """The chat completion request for one page (gundam mode) or a group of pages (base mode)."""
    is_group = len(pngs) > 1
    window = MULTI_PAGE_WINDOW if is_group else SINGLE_PAGE_WINDOW
    prompt = MULTI_PAGE_PROMPT if is_group else SINGLE_PAGE_PROMPT
    if model.dialect is Dialect.VLLM:
        prompt = "<image>" * len(pngs) + prompt
    urls = [f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}" for png in pngs]
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    body: dict[str, Any] = {
        "model": options.model,
        "messages": [{"role": "user", "content": [{"type": "text", "text": prompt}, *images]}],
        "temperature": 0,
        "max_tokens": max_tokens(len(pngs), model, options),
        "skip_special_tokens": False,
    }
    arguments: dict[str, Any] = {"ngram_size": NGRAM_SIZE, "window_size": window}
    if model.dialect is Dialect.VLLM:
        body["vllm_xargs"] = {**arguments, "whitelist_token_ids": list(TABLE_CELL_TOKEN_IDS)}
        return body
    body["images_config"] = {"image_mode": "base" if is_group else "gundam"}
    if options.sglang_logit_processor:
        body["custom_logit_processor"] = options.sglang_logit_processor
        body["custom_params"] = arguments
    return body


def max_tokens(page_count: int, model: ServedModel, options: ServedOptions) -> int:
    """The longest answer to ask for: the pages' budget, or what their images leave of the context."""
    budget = options.max_tokens_per_page * page_count
    if model.context_tokens is None:
        return budget
    images = SINGLE_PAGE_TOKENS if page_count == 1 else GROUP_PAGE_TOKENS * page_count
    return max(min(budget, model.context_tokens - images - PROMPT_TOKENS), 1)


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


def _answer(payload: dict[str, Any]) -> Answer:
    try:
        choice = payload["choices"][0]
        text = choice["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        raise RequestFailed("the answer holds no text (no choices[0].message.content)", is_service=False) from error
    if text is not None and not isinstance(text, str):
        raise RequestFailed(f"the answer's content is {type(text).__name__}, not text", is_service=False)
    usage = payload.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return Answer(
        text=text or "",
        token_count=count if isinstance(count, int) and count >= 0 else 0,
        is_truncated=choice.get("finish_reason") == "length",
    )


def _said(response: httpx.Response) -> str:
    """The server's own words, shortened to one line."""
    try:
        payload = response.json()
        error = payload.get("error", payload)
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError):
        text = response.text
    text = " ".join(text.split())
    return text[:_MAX_SHOWN_CHARACTERS] or response.reason_phrase


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
