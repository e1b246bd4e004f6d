"""What passes between a document being read and the loop that serves many of them: requests, answers, results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ocr2_core.errors import EngineError, OcrError
from ocr2_core.ledger import PageStatus
from ocr2_core.ocr2.page_decoder import Boundary, EncodedPage


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A page to be read. `encode_alone` encodes it once more for reading it by itself, at a higher resolution."""

    page_index: int
    encoded: EncodedPage
    encode_alone: Callable[[], EncodedPage]


@dataclass(frozen=True, slots=True)
class PageReading:
    """One page as it was read. `text` is the model's markup; a failed page keeps what was read before it failed."""

    page_index: int
    text: str
    token_count: int
    status: PageStatus
    reason: str | None = None
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AwaitPages:
    """Go on when pages have come or will come no more. Answer: None."""


@dataclass(frozen=True, slots=True)
class OpenSequence:
    """Start a sequence as soon as there is room. Answer: logits. Thrown: GroupNeverFits, SequenceLost.

    A document that has a sequence open already may open one more, which then gets its tokens until it is closed; that
    one must fit at once, or NoRoom is thrown.
    """

    pages: tuple[EncodedPage, ...]
    prompt_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReleasePages:
    """Give back finished pages of the open sequence. Answer: None."""

    page_indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    """Move the open sequence to its next group. Answer: logits or None. Thrown: NoRoom, SequenceLost."""

    kept_page_indexes: tuple[int, ...]
    new_pages: tuple[EncodedPage, ...]
    boundary: Boundary


@dataclass(frozen=True, slots=True)
class FeedToken:
    """One decode step. `current_page_index`: the page now read, where that changed. Answer: logits."""

    token_id: int
    current_page_index: int | None = None
    released_page_indexes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CloseSequence:
    """Give the sequence back. Answer: None."""


Request = AwaitPages | OpenSequence | ReleasePages | HandOver | FeedToken | CloseSequence


class GroupNeverFits(EngineError):
    """The block pool is too small for this group, even when it is empty."""


class NoRoom(OcrError):
    """There is no room at once: for a larger group at its hand-over (the sequence was closed), or for a second sequence
    (the first is still open)."""


class SequenceLost(OcrError):
    """The decoder failed; the sequence was closed. The message names the cause."""
