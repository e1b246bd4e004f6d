"""How a document's pages are cut into groups: windows of G pages by page index, each sharing `overlap` pages with the
next.

The cut depends on page indexes only, never on what was read before. So a run that was killed cuts the rest of the
document as the first run would have, and pages that never reach the decoder (blank ones, ones with a text layer) leave
their windows smaller and move nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ocr2_core.errors import EngineError


class Preset(StrEnum):
    """Named group sizes.

    PAPER: 105 pages, for checkpoints trained to read that many. V1_SAFE: 12 pages, for the released v1 checkpoint,
    which was trained at 32,768 positions: 12 pages of 273 visual and 2,277 text tokens fit.
    """

    PAPER = "paper"
    V1_SAFE = "v1-safe"


@dataclass(frozen=True, slots=True)
class Grouping:
    """`page_chunk_size` pages in the cache at once (G), `chunk_overlap` of them shared with the group before."""

    page_chunk_size: int
    chunk_overlap: int = 1

    def __post_init__(self) -> None:
        if self.page_chunk_size < 1:
            raise EngineError(f"page_chunk_size must be at least 1, not {self.page_chunk_size}.")
        if not 0 <= self.chunk_overlap < self.page_chunk_size:
            raise EngineError(
                f"chunk_overlap must be at least 0 and less than page_chunk_size ({self.page_chunk_size}), "
                f"not {self.chunk_overlap}."
            )

    @classmethod
    def of_preset(cls, preset: str, page_chunk_size: int | None = None, chunk_overlap: int | None = None) -> Grouping:
        """The preset's grouping, with what is given put in its place. A group of one page has no overlap."""
        try:
            size = page_chunk_size or _SIZES[Preset(preset)]
        except ValueError:
            raise EngineError(f"Unknown preset {preset!r}. Presets: {', '.join(Preset)}.") from None
        return cls(size, (1 if size > 1 else 0) if chunk_overlap is None else chunk_overlap)

    @property
    def stride(self) -> int:
        """New pages a group brings."""
        return self.page_chunk_size - self.chunk_overlap

    def group_of(self, page_index: int) -> int:
        """Number of the group in which the page is new."""
        return max(0, page_index - self.chunk_overlap) // self.stride

    def first_page_of(self, group: int) -> int:
        """Index of the group's first page: from group 1 on, its first overlap page."""
        return group * self.stride

    def end_of(self, group: int) -> int:
        """Index after the group's last page."""
        return self.first_page_of(group) + self.page_chunk_size

    def resume_page_index(self, page_index: int) -> int:
        """Where reading has to start again for `page_index` to come out as in a run that was never broken off."""
        return self.first_page_of(self.group_of(page_index))


_SIZES = {Preset.PAPER: 105, Preset.V1_SAFE: 12}
