"""Text columns and reading order by recursive cuts at gutters that many rows respect (XY-cut, Nagy & Seth 1984)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from ocr2_core.page_line import PageLine, rows_of

_LEAST_ROWS = 4
_LEAST_WIDTH_SHARE = 0.22  # of the text area, for each column
_LEAST_FILL = 0.6  # median line width over column width: text fills its column, the entries of lists do not
# Columns of short lines (command references, indexes) are told from tables by lying in the middle of the page, having
# some full lines on both sides, and not standing row by row beside each other.
_MIDDLE_SHARE = 0.08
_LEAST_SHORT_ROWS = 12
_LEAST_FULL_LINES = 0.1
_MOST_SHARED_ROWS = 0.85


def split_columns(pieces: Sequence[PageLine]) -> list[list[PageLine]]:
    """The pieces of a page, grouped into runs that belong to one column each, in reading order.

    A page of one column is one run. Lines over the whole width stand between the bands of columns.
    """
    rows = rows_of(pieces)
    if len(rows) < _LEAST_ROWS:
        return [list(pieces)] if pieces else []
    left = min(piece.x0 for piece in pieces)
    right = max(piece.x1 for piece in pieces)
    runs: list[list[PageLine]] = []
    pending: list[list[PageLine]] = []
    start = 0
    while start < len(rows):
        band = _band(rows, start, left, right)
        if band is None:
            pending.append(rows[start])
            start += 1
            continue
        end, gutter = band
        if pending:
            runs.append([piece for row in pending for piece in row])
            pending = []
        inside = [piece for row in rows[start:end] for piece in row]
        for side in (
            [piece for piece in inside if (piece.x0 + piece.x1) / 2 < gutter],
            [piece for piece in inside if (piece.x0 + piece.x1) / 2 >= gutter],
        ):
            runs.extend(split_columns(side))
        start = end
    if pending:
        runs.append([piece for row in pending for piece in row])
    return runs


def _band(rows: list[list[PageLine]], start: int, left: float, right: float) -> tuple[int, float] | None:
    """(end row, gutter x) of the longest band of rows from `start` on that one gutter divides into two columns."""
    best: tuple[int, float] | None = None
    candidates = {
        round((one.x1 + other.x0) / 2)
        for row in rows[start : start + 12]
        for one, other in pairwise(row)
        if other.x0 - one.x1 >= 0.7 * min(one.size, other.size)
    }
    for gutter in sorted(candidates):
        if not left + _LEAST_WIDTH_SHARE * (right - left) < gutter < right - _LEAST_WIDTH_SHARE * (right - left):
            continue
        end = start
        while end < len(rows) and not any(piece.x0 < gutter - 1 and piece.x1 > gutter + 1 for piece in rows[end]):
            end += 1
        band = rows[start:end]
        is_middle = abs(gutter - (left + right) / 2) < _MIDDLE_SHARE * (right - left)
        is_gutter = _parts_text(band, gutter) or (is_middle and _parts_short_lines(band, gutter))
        if len(band) >= _LEAST_ROWS and is_gutter and (best is None or end > best[0]):
            best = (end, float(gutter))
    return best


def _parts_text(rows: list[list[PageLine]], gutter: float) -> bool:
    """Whether both sides are columns that text fills."""
    for side in _sides(rows, gutter):
        side_rows = rows_of(side)
        if len(side_rows) < _LEAST_ROWS:
            return False
        width = max(piece.x1 for piece in side) - min(piece.x0 for piece in side)
        filled = statistics.median(row[-1].x1 - row[0].x0 for row in side_rows)
        letters = statistics.fmean(sum(len(piece.text) for piece in row) for row in side_rows)
        if filled < _LEAST_FILL * width or letters < 12:
            return False
    return True


def _parts_short_lines(rows: list[list[PageLine]], gutter: float) -> bool:
    """Whether both sides are columns of their own although most lines are short."""
    widths = []
    for side in _sides(rows, gutter):
        side_rows = rows_of(side)
        if len(side_rows) < _LEAST_SHORT_ROWS:
            return False
        width = max(piece.x1 for piece in side) - min(piece.x0 for piece in side)
        full = sum(row[-1].x1 - row[0].x0 >= _LEAST_FILL * width for row in side_rows)
        if full < _LEAST_FULL_LINES * len(side_rows):
            return False
        widths.append(width)
    shared = sum(row[0].x1 <= gutter + 1 < row[-1].x1 for row in rows)
    return min(widths) >= 0.7 * max(widths) and shared <= _MOST_SHARED_ROWS * len(rows)


def _sides(rows: list[list[PageLine]], gutter: float) -> tuple[list[PageLine], list[PageLine]]:
    pieces = [piece for row in rows for piece in row]
    return [piece for piece in pieces if piece.x1 <= gutter + 1], [piece for piece in pieces if piece.x1 > gutter + 1]
