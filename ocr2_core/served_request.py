"""What is asked of a server with Unlimited-OCR, and what it answers: the chat completion of OpenAI's API.

Request fields are as vLLM and SGLang want them (vLLM's recipe for baidu/Unlimited-OCR; the model's README and SGLang's
cookbook for SGLang): the exact prompt, one `<image>` in the text for each image on vLLM and none on SGLang, special
tokens kept in the answer, temperature 0, and the arguments of the server's no-repeat-n-gram logits processor, with the
tokens of table cells exempt so that equal table rows survive it. Answers are streamed: a long one then shows that it is
alive, to proxies and to us, and can be left at once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

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
        "stream": True,
        "stream_options": {"include_usage": True},
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


def whole_answer(payload: dict[str, Any]) -> Answer:
    """The answer of a server that does not stream. Raises RequestFailed where it holds no text."""
    try:
        choice = payload["choices"][0]
        text, finish = choice["message"]["content"], choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise RequestFailed("the answer holds no text (no choices[0].message.content)", is_service=False) from error
    return _finished([text], finish, payload.get("usage"))


def streamed_answer(lines: Iterable[str]) -> Answer:
    """The answer out of a stream of server-sent events. Raises RequestFailed when it breaks off or says an error."""
    pieces: list[Any] = []
    finish = usage = None
    for line in lines:
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]":
            break
        if not data:
            continue
        event = json_object(data)
        if event.get("error"):
            raise RequestFailed(f"the server broke the answer off: {shortened(event['error'])}", is_service=True)
        usage = event.get("usage") or usage
        for choice in event.get("choices") or []:
            try:
                pieces.append((choice.get("delta") or {}).get("content"))
                finish = choice.get("finish_reason") or finish
            except AttributeError as error:
                raise RequestFailed("the answer's stream cannot be understood", is_service=True) from error
    return _finished(pieces, finish, usage)


def json_object(text: str) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise RequestFailed(f"the answer is not JSON but {text[:60]!r}", is_service=True) from error
    if not isinstance(answer, dict):
        raise RequestFailed(f"the answer is not a JSON object but {type(answer).__name__}", is_service=True)
    return answer


def shortened(said: object) -> str:
    """A server's own words in one line."""
    message = said.get("message", said) if isinstance(said, dict) else said
    return " ".join(str(message).split())[:_MAX_SHOWN_CHARACTERS]


def _finished(pieces: list[Any], finish: object, usage: object) -> Answer:
    if finish not in ("stop", "length"):
        how = "broke off before its end" if finish is None else f"was ended by the server ({finish})"
        raise RequestFailed(f"the answer {how}", is_service=True)
    if any(not isinstance(piece, str | None) for piece in pieces):
        raise RequestFailed("the answer's content is no text", is_service=False)
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return Answer(
        text="".join(piece or "" for piece in pieces),
        token_count=count if isinstance(count, int) and count >= 0 else 0,
        is_truncated=finish == "length",
    )
