"""One pass of a decoder over the pages of a sequence: its output cut at page markers, each page under guard."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ocr2_core.ocr2.alignment import are_duplicates
from ocr2_core.ocr2.guards import DecodingFault, GuardSettings, PageEnding, PageGuard, StructureTokens
from ocr2_core.ocr2.operations import FeedToken, SequenceLost

Logits = NDArray[np.float32]

_EXTRA_PIECES = 2  # how far a decoder may write past its last page before it is stopped


class OutputVocabulary(Protocol):
    """What must be known of a model's tokens beside their numbers."""

    page_marker_token_ids: tuple[int, ...]
    stop_token_ids: frozenset[int]
    structure: StructureTokens
    group_prompt_token_ids: tuple[int, ...]
    single_prompt_token_ids: tuple[int, ...]

    def text(self, token_ids: Sequence[int]) -> str:
        """The markup these tokens spell, special tokens included."""
        ...

    def marker_length(self, token_ids: Sequence[int]) -> int:
        """How many tokens at the end spell a page marker, 0 where none does. A marker may be several tokens."""
        ...


class Ending(StrEnum):
    """Why a pass ended. STOP: the decoder said so. FULL: all pages are read and another marker came. EXTRA: it went on
    writing pages past the last. LOOP, TRUNCATED: a guard broke a page off. LOST: the decoder failed. TIMEOUT:
    deadline."""

    STOP = "stop"
    FULL = "full"
    EXTRA = "extra"
    LOOP = "loop"
    TRUNCATED = "truncated"
    LOST = "lost"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Piece:
    """What was written between two page markers."""

    text: str
    token_count: int
    duration_s: float


@dataclass(slots=True)
class Pass:
    """`pieces` are complete, `broken` is the page that was being written when the pass was broken off. `is_open`:
    whether the sequence still is."""

    pieces: list[Piece] = field(default_factory=list)
    ending: Ending = Ending.STOP
    broken: Piece | None = None
    detail: str = ""
    is_open: bool = True
    unfed_token_ids: tuple[int, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the decoder came to an end by itself, so that its sequence may be handed over."""
        return self.ending in (Ending.STOP, Ending.FULL)


@dataclass(frozen=True, slots=True)
class PassSettings:
    guards: GuardSettings = field(default_factory=GuardSettings)
    release_finished_pages: bool = False
    clock: Callable[[], float] = time.monotonic
    deadline_s: float | None = None


def read_pass(
    page_indexes: Sequence[int],
    logits: Logits | None,
    vocabulary: OutputVocabulary,
    settings: PassSettings,
    *,
    unfed_token_ids: Sequence[int] = (),
    ends_when_full: bool = False,
    kept_page_indexes: frozenset[int] = frozenset(),
) -> Generator[FeedToken, Any, Pass]:
    """Decode until the pages are read; `logits` is None where decoding goes on from a page marker, whose tokens that
    were not fed yet are `unfed_token_ids`.

    Text before the first marker belongs to the first page, with or without a marker of its own. `ends_when_full`: a
    marker after the last page ends the pass, because the sequence will be handed over there. Pages in
    `kept_page_indexes` are never released early.
    """
    writer = _Writer(page_indexes, vocabulary, settings)
    try:
        if logits is None:
            writer.begin_page(0)
            for token in unfed_token_ids:
                logits = yield FeedToken(token, current_page_index=page_indexes[0])
        assert logits is not None
        while True:
            if settings.deadline_s is not None and settings.clock() >= settings.deadline_s:
                return writer.broken_off(Ending.TIMEOUT)
            token = writer.guard.choose(logits)
            if token in vocabulary.stop_token_ids:
                # after a refusal it would have repeated itself; that it may not is no end of the page
                return writer.broken_off(Ending.LOOP) if writer.guard.has_refused else writer.ended(Ending.STOP)
            ending = writer.guard.accept(token)
            marker_length = vocabulary.marker_length(writer.guard.tokens)
            if not marker_length:
                if ending is not None:
                    return writer.broken_off(Ending.LOOP if ending is PageEnding.LOOP else Ending.TRUNCATED)
                logits = yield FeedToken(token)
                continue
            if writer.guard.has_refused:
                return writer.broken_off(Ending.LOOP)
            writer.begin_page(marker_length)
            if ends_when_full and writer.is_full():
                return writer.finished(Ending.FULL, (token,))
            if writer.is_past_the_end():
                return writer.finished(Ending.EXTRA)
            position = min(len(writer.result.pieces), len(page_indexes) - 1)
            released: tuple[int, ...] = ()
            if settings.release_finished_pages and position >= 2:
                released = tuple(page for page in (page_indexes[position - 2],) if page not in kept_page_indexes)
            logits = yield FeedToken(token, current_page_index=page_indexes[position], released_page_indexes=released)
    except DecodingFault as error:
        return writer.broken_off(Ending.LOST, str(error))
    except SequenceLost as error:
        result = writer.broken_off(Ending.LOST, str(error))
        result.is_open = False
        return result


class _Writer:
    """The page being written and those done."""

    def __init__(self, page_indexes: Sequence[int], vocabulary: OutputVocabulary, settings: PassSettings) -> None:
        self.result = Pass()
        self.guard = PageGuard(settings.guards, vocabulary.structure)
        self._page_count = len(page_indexes)
        self._vocabulary = vocabulary
        self._settings = settings
        self._has_marker = False
        self._start_s = settings.clock()

    @property
    def is_writing(self) -> bool:
        """Whether a page was begun: by a marker, or by text before any marker."""
        return self._has_marker or bool(self.guard.tokens)

    def begin_page(self, marker_length: int) -> None:
        tokens = self.guard.tokens[: len(self.guard.tokens) - marker_length]
        # white space before the first marker is no page
        if self._has_marker or self._vocabulary.text(tokens).strip():
            self.result.pieces.append(self._piece(tokens))
        self._has_marker = True
        self.guard = PageGuard(self._settings.guards, self._vocabulary.structure)
        self._start_s = self._settings.clock()

    def ended(self, ending: Ending) -> Pass:
        """The pass, with the page that was being written."""
        if self.is_writing:
            self.result.pieces.append(self._piece(self.guard.tokens))
        return self.finished(ending, self._vocabulary.page_marker_token_ids)

    def finished(self, ending: Ending, unfed_token_ids: tuple[int, ...] = ()) -> Pass:
        self.result.ending = ending
        self.result.unfed_token_ids = unfed_token_ids
        return self.result

    def broken_off(self, ending: Ending, detail: str = "") -> Pass:
        tokens = self.guard.tokens_before_loop() if ending is Ending.LOOP else self.guard.tokens
        self.result.broken = self._piece(tokens)
        self.result.ending, self.result.detail = ending, detail
        return self.result

    def is_full(self) -> bool:
        """Whether each page was written, as far as can be told: once, that is."""
        return len(self.result.pieces) == self._page_count and self._repeated_count() == 0

    def is_past_the_end(self) -> bool:
        """Whether more pages were written than there are, beyond what repeated pages explain."""
        extra = len(self.result.pieces) - self._page_count
        if extra < _EXTRA_PIECES:
            return False
        # a decoder stuck on one page repeats it for ever
        return extra >= min(max(_EXTRA_PIECES, self._repeated_count() + 1), self._page_count + _EXTRA_PIECES)

    def _repeated_count(self) -> int:
        pieces = self.result.pieces
        return sum(are_duplicates(first.text, second.text) for first, second in pairwise(pieces))

    def _piece(self, tokens: list[int]) -> Piece:
        duration_s = self._settings.clock() - self._start_s
        return Piece(self._vocabulary.text(tokens), len(tokens), duration_s)
