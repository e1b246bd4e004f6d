"""Errors of the OCR2 decoder. All are engine errors: the engine cannot go on, the page is not to blame."""

from __future__ import annotations

from ocr2_core.errors import EngineError


class DecoderError(EngineError):
    """Base of the decoder's own errors: wrong sequence, wrong page, wrong shapes."""


class PoolExhausted(DecoderError):
    """The block pool has fewer free blocks than were asked for; nothing was allocated."""

    def __init__(self, wanted_blocks: int, free_blocks: int, total_blocks: int) -> None:
        super().__init__(
            f"the KV pool has {free_blocks} of {total_blocks} blocks free, {wanted_blocks} are needed. "
            "Use smaller page groups, fewer documents at a time, or a larger pool."
        )
        self.wanted_blocks = wanted_blocks
        self.free_blocks = free_blocks
        self.total_blocks = total_blocks

    def __reduce__(self) -> tuple[type[PoolExhausted], tuple[int, int, int]]:
        return type(self), (self.wanted_blocks, self.free_blocks, self.total_blocks)


class UnknownPage(DecoderError):
    """A page was named that is not in the sequence's cache."""


class UnknownSequence(DecoderError):
    """A sequence number was used that is not open."""


class GateFileError(DecoderError):
    """The checkpoint's SR-SWA gate file is partial, mis-shaped or damaged. Remove it to use parameter-free gates."""
