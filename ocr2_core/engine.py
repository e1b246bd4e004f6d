"""The interface of a reading engine: prepared page images in, pages with blocks and ledger rows out, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ocr2_core.blocks import TextLine
from ocr2_core.ledger import PageResult


@dataclass(frozen=True, slots=True)
class PageImage:
    """One page ready for an engine: upright, deskewed, known not to be blank.

    `image` is uint8, (height_px, width_px) gray or (height_px, width_px, 3) RGB. `rotation_degrees` and `skew_degrees`
    say what was done to get there (see PageBlocks); an engine copies them into its result unchanged. `text_lines` holds
    the lines of a sound PDF text layer where the page has one: only the layout has to be found then.
    """

    page_index: int
    image: NDArray[np.uint8]
    dpi: float
    rotation_degrees: int = 0
    skew_degrees: float = 0.0
    page_label: str | None = None
    text_lines: tuple[TextLine, ...] | None = None

    @property
    def width_pt(self) -> float:
        return float(self.image.shape[1]) * 72.0 / self.dpi

    @property
    def height_pt(self) -> float:
        return float(self.image.shape[0]) * 72.0 / self.dpi


@runtime_checkable
class Engine(Protocol):
    """Reads pages. Implementations load their models on first use and hold no state between documents."""

    name: str

    def identity(self) -> dict[str, str | int | float | bool]:
        """All that the result depends on: model names and hashes, settings, code version. Hashed into fingerprints."""
        ...

    def read_pages(self, pages: Iterable[PageImage]) -> Iterator[PageResult]:
        """Read pages as they come; yield exactly one result for each, in the same order, as early as possible.

        A page that cannot be read is yielded as `failed` with its reason. Raises EngineError only when no page could
        be read at all.
        """
        ...

    def close(self) -> None:
        """Release models and memory."""
        ...


@runtime_checkable
class GroupedEngine(Protocol):
    """An engine that reads pages in groups whose pages depend on each other."""

    def resume_page_index(self, page_index: int) -> int:
        """Where reading has to start for `page_index` to come out as in a run that was never broken off: at most
        `page_index`. The pages before it are read again and their results are of no use."""
        ...
