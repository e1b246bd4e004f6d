"""Watches one page being written: forbids n-grams to return, finds loops, and ends a page at its token budget.

The n-gram rule is that of transformers' sliding-window no-repeat processor for this model, with two differences. It
forgets at each page marker, because a notice printed on every page is no repetition. And it spares tables: structure
tokens are never forbidden, and an n-gram with a row's end in it is a repeated row, which printed tables do have. What
the rule spares is bounded by the count of equal repeats instead.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ocr2_core.errors import OcrError


class DecodingFault(OcrError):
    """The model's numbers cannot be used (not finite)."""


class PageEnding(StrEnum):
    """Why the writing of a page was broken off."""

    LOOP = "loop"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Bounds of one page's text, in tokens.

    `ngram_size`, `ngram_window_tokens`: an n-gram may not return within the window (0 turns the rule off).
    `max_refusals` choices forbidden within `refusal_window_tokens` are a loop: the model insists on repeating itself
    (each refusal breaks the n-gram, so the next can come `ngram_size` tokens later at the earliest).
    `max_table_repeats`: equal rows or cells one after another, which the n-gram rule spares. `distinct_window_tokens`,
    `least_distinct_ratio`: outside tables, fewer different 4-grams than this share are a loop.
    """

    ngram_size: int = 35
    ngram_window_tokens: int = 1024
    max_page_tokens: int = 8192
    max_refusals: int = 4
    refusal_window_tokens: int = 512
    max_table_repeats: int = 100
    max_period_tokens: int = 512
    distinct_window_tokens: int = 512
    least_distinct_ratio: float = 0.2

    def __post_init__(self) -> None:
        if self.ngram_size < 0 or self.ngram_window_tokens < 1 or self.max_page_tokens < 1 or self.max_refusals < 1:
            raise ValueError(f"guard settings must be positive: {self}")


@dataclass(frozen=True, slots=True)
class StructureTokens:
    """Ids of tokens that build structure (tags, markers, stops): never forbidden. `row_ends` are those ending a row."""

    all: frozenset[int] = frozenset()
    row_ends: frozenset[int] = frozenset()


class PageGuard:
    """State of one page: `choose` the next token from its logits, then `accept` it and ask for the `ending`."""

    def __init__(self, settings: GuardSettings, structure: StructureTokens) -> None:
        self._settings = settings
        self._structure = structure
        self._tokens: list[int] = []
        self._starts: dict[tuple[int, ...], list[int]] = {}
        self._refusals: deque[int] = deque()
        self.has_refused = False
        self._last_row_end = -1
        # how many tokens in a row equal the one `period` tokens before, for each period at once
        self._equal_run = np.zeros(settings.max_period_tokens, np.int32)
        self._recent = np.full(settings.max_period_tokens, -1, np.int64)
        self._loop_start: int | None = None

    @property
    def tokens(self) -> list[int]:
        return self._tokens

    def choose(self, logits: NDArray[np.float32]) -> int:
        """The likeliest token that is not forbidden; `has_refused` says whether a likelier one was. Raises
        DecodingFault where the logits are not finite."""
        token = int(np.argmax(logits))
        if not np.isfinite(logits[token]):
            raise DecodingFault("the model gave logits that are not finite; load it in bfloat16 or float32")
        forbidden = self._forbidden()
        self.has_refused = token in forbidden
        if not self.has_refused:
            return token
        self._refusals.append(len(self._tokens))
        allowed = logits.copy()
        allowed[list(forbidden)] = -np.inf
        return int(np.argmax(allowed))

    def accept(self, token: int) -> PageEnding | None:
        """Take the token into the page; says why the page has to end here, if it has to."""
        tokens, size = self._tokens, self._settings.ngram_size
        tokens.append(token)
        if token in self._structure.row_ends:
            self._last_row_end = len(tokens) - 1
        if size > 1 and len(tokens) >= size:
            self._starts.setdefault(tuple(tokens[-size:-1]), []).append(len(tokens) - size)
        self._equal_run = np.where(self._recent == token, self._equal_run + 1, 0)
        self._recent[1:] = self._recent[:-1]
        self._recent[0] = token
        if self._is_loop():
            return PageEnding.LOOP
        return PageEnding.TRUNCATED if len(tokens) >= self._settings.max_page_tokens else None

    def tokens_before_loop(self) -> list[int]:
        """The page's tokens up to and with the first round of its loop; all of them where there is none."""
        return self._tokens[: self._loop_start]

    def _forbidden(self) -> set[int]:
        tokens, size = self._tokens, self._settings.ngram_size
        if size < 1 or len(tokens) < size:
            return set()
        if self._last_row_end > len(tokens) - size:
            return set()
        oldest = len(tokens) - self._settings.ngram_window_tokens
        starts = self._starts.get(tuple(tokens[len(tokens) - size + 1 :]), []) if size > 1 else range(len(tokens))
        following = {tokens[start + size - 1] for start in starts if start >= oldest}
        return following - self._structure.all

    def _is_loop(self) -> bool:
        settings, count = self._settings, len(self._tokens)
        while self._refusals and self._refusals[0] <= count - settings.refusal_window_tokens:
            self._refusals.popleft()
        if len(self._refusals) >= settings.max_refusals:
            self._loop_start = self._refusals[0]
            return True
        periods = np.flatnonzero(self._equal_run >= np.arange(1, len(self._equal_run) + 1) * settings.max_table_repeats)
        if periods.size:
            period = int(periods[0]) + 1
            self._loop_start = count - int(self._equal_run[period - 1])
            return True
        window = settings.distinct_window_tokens
        if count < window or count % 64 or self._last_row_end >= count - window:
            return False
        tail = self._tokens[-window:]
        distinct = len(set(zip(tail, tail[1:], tail[2:], tail[3:], strict=False)))
        if distinct >= settings.least_distinct_ratio * (window - 3):
            return False
        self._loop_start = count - window
        return True
