"""Rows of a printed table of contents: title, leaders, page number at the right edge."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ocr2_core import line_labels
from ocr2_core.page_line import PageLine, rows_of

_LEAST_ENTRIES = 4


@dataclass(frozen=True, slots=True)
class ContentsEntry:
    """One entry: the row's pieces and its text, the leaders reduced to ` ... `."""

    pieces: tuple[PageLine, ...]
    text: str
    has_leaders: bool


def find_contents(lines: Sequence[PageLine]) -> list[ContentsEntry]:
    """The entries among the lines of a page or column; empty where it is no contents page.

    A row is an entry when it ends in a page number that stands at the common right edge, behind leaders or a gap.
    """
    found = []
    for row in rows_of(lines):
        entry = _entry(row)
        if entry is not None:
            found.append((row, entry))
    if len(found) < _LEAST_ENTRIES:
        return []
    size = statistics.median(row[0].size for row, _ in found)
    edge = statistics.median(row[-1].x1 for row, _ in found)
    entries = [
        ContentsEntry(tuple(row), text, any(line_labels.has_leaders(piece.text) for piece in row))
        for row, text in found
        if abs(row[-1].x1 - edge) < 1.6 * size
    ]
    return entries if len(entries) >= _LEAST_ENTRIES else []


def _entry(row: list[PageLine]) -> str | None:
    text = " ".join(piece.text for piece in row)
    split = line_labels.split_contents_entry(text)
    if split is None:
        return None
    title, number = split
    leaders = line_labels.has_leaders(text)
    apart = len(row) > 1 and row[-1].text.strip() == number and row[-1].x0 - row[-2].x1 > 1.5 * row[-1].size
    return f"{title} ... {number}" if leaders or apart else None
