"""Whether a table goes on at the top of the next page, and the two parts as one grid.

The header printed again is the surest sign. Without one the parts must be aligned, stand at the end and at the
beginning of their pages, and hold the same kinds of values (numbers or words) in the same columns.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from structure_recovery.elements import Piece, join_texts
from structure_recovery.tables import Cell, Grid, append_rows
from structure_recovery.vocabulary import letters_of

_NUMBER = re.compile(r"^[-+±~≈<>≤≥]{0,2}\s?\d[\d\s.,:/×x–-]*\s?(?:%|°?[^\W\d_]{1,4})?$")
_ENDS = ".!?:;。！？：；…"
# A header printed again may have been read with a wrong letter or two.
_SAME_HEADER = 0.85
# Heights in thousandths of the page: from where on a table reaches its end, up to where it stands at its top, and from
# where on the header printed again on the next page is a sign.
_END_OF_PAGE, _TOP_OF_PAGE, _LOWER_PART = 700, 250, 600
_MIN_ROWS = 2


@dataclass(frozen=True, slots=True)
class Continuation:
    """`header_rows`: leading rows of the second part that repeat the header. `splits_row`: whether its first row is the
    rest of the first part's last one."""

    header_rows: int
    splits_row: bool


def find_continuation(first: Grid, last: Piece, second: Grid, following: Piece) -> Continuation | None:
    """How `second` (in `following`) goes on with `first` (whose last part is `last`); None for a table of its own."""
    if following.page_index != last.page_index + 1 or not first.cells or not second.cells:
        return None
    if last.bbox_norm[3] > _LOWER_PART and (header_rows := _repeated_header(first, second)):
        return Continuation(header_rows, _splits_row(first, second, header_rows))
    if second.header_row_count() or not _is_aligned(last, following):
        return None
    if second.column_count > first.column_count or not _may_lack_columns(first, second):
        return None
    if not _have_same_kinds(first, second):
        return None
    return Continuation(0, _splits_row(first, second, 0))


def joined_grid(first: Grid, second: Grid, how: Continuation) -> Grid:
    """Both parts as one. Columns that the second part lacks stay empty in its rows; no text is lost."""
    joined = append_rows(first, second, how.header_rows)
    if not how.splits_row:
        return joined
    seam = first.row_count
    rest = {cell.column: cell.text for cell in joined.cells if cell.row == seam and cell.text}
    cells = []
    for cell in joined.cells:
        if cell.row == seam - 1 and cell.column in rest:
            cells.append(replace(cell, text=join_texts(cell.text, rest[cell.column])))
        elif cell.row > seam:
            cells.append(replace(cell, row=cell.row - 1))
        elif cell.row < seam:
            cells.append(cell)
    return Grid(cells, joined.row_count - 1, joined.column_count)


def _repeated_header(first: Grid, second: Grid) -> int:
    """How many leading rows of `second` repeat those of `first`; 0 where none, or nothing else, would be left."""
    if first.column_count != second.column_count:
        return 0
    count = min(max(first.header_row_count(), 1), first.row_count, second.row_count)
    mine, other = (_letters(grid, count) for grid in (first, second))
    if len("".join(mine)) < 2 or second.row_count == count:
        return 0
    if any(cell.row < count < cell.row + cell.row_span for cell in second.cells):
        # cells reaching out of the header would be cut
        return 0
    if not all(bool(a) == bool(b) for a, b in zip(mine, other, strict=True)):
        return 0
    matcher = difflib.SequenceMatcher(None, "|".join(mine), "|".join(other), autojunk=False)
    return count if matcher.ratio() >= _SAME_HEADER else 0


def _letters(grid: Grid, row_count: int) -> list[str]:
    return [letters_of(text) for row in grid.texts()[:row_count] for text in row]


def _is_aligned(last: Piece, following: Piece) -> bool:
    if last.bbox_norm[3] <= _END_OF_PAGE or following.bbox_norm[1] >= _TOP_OF_PAGE:
        return False
    left, right = (abs(last.bbox_norm[side] - following.bbox_norm[side]) for side in (0, 2))
    # a scan shifts a page as a whole, it does not stretch it
    return max(left, right) < 60 and abs(left - right) < 25


def _may_lack_columns(first: Grid, second: Grid) -> bool:
    """Whether the columns that `second` has fewer of are often empty in `first`, so that no cell is missed."""
    body = _body(first)
    missing = range(second.column_count, first.column_count)
    return all(len(body) >= _MIN_ROWS and sum(not row[column] for row in body) * 2 >= len(body) for column in missing)


def _have_same_kinds(first: Grid, second: Grid) -> bool:
    """False where a column of numbers would go on with words, or the other way round."""
    upper, lower = _body(first), second.texts()
    if len(upper) < _MIN_ROWS:
        return True
    for column in range(second.column_count):
        before, after = (_number_share([row[column] for row in rows]) for rows in (upper, lower))
        first_cell = lower[0][column]
        if before is None or after is None:
            continue
        if (before >= 0.8 and after <= 0.2) or (before <= 0.2 and after >= 0.8):
            return False
        # one row of words above columns of numbers is the header of another table
        if before >= 0.8 and first_cell and not _NUMBER.match(first_cell) and _is_wordy(lower[0]):
            return False
    return True


def _is_wordy(row: Sequence[str]) -> bool:
    return all(text and not _NUMBER.match(text) for text in row)


def _number_share(texts: Sequence[str]) -> float | None:
    filled = [text for text in texts if text]
    return sum(bool(_NUMBER.match(text)) for text in filled) / len(filled) if filled else None


def _body(grid: Grid) -> list[list[str]]:
    rows = grid.texts()
    marked = grid.header_row_count()
    return rows[marked:] if marked else rows[1:] or rows


def _splits_row(first: Grid, second: Grid, header_rows: int) -> bool:
    """Whether the first row behind the header ends sentences that the last row of `first` began.

    Each of its cells must have text above it to go on with, one at least in the middle of a sentence; and it must begin
    as no other row does: with an empty first cell, or in lower case.
    """
    rows = second.texts()[header_rows:]
    spans = any(cell.row_span > 1 or cell.column_span > 1 for cell in _cells_of(second, header_rows))
    spans = spans or any(cell.row_span > 1 or cell.column_span > 1 for cell in _cells_of(first, first.row_count - 1))
    if not rows or spans or first.row_count <= first.header_row_count():
        return False
    upper, lower = first.texts()[-1], [*rows[0], *[""] * (first.column_count - len(rows[0]))]
    filled = [(above, below) for above, below in zip(upper, lower, strict=True) if below]
    if not filled or not all(above for above, _ in filled):
        return False
    runs_on = [_runs_on(above, below) for above, below in filled]
    others = [*_body(first), *rows[1:]]
    if not lower[0]:
        return any(runs_on) and all(row[0] for row in others)
    return all(runs_on) and lower[0][0].islower() and not any(row[0][:1].islower() for row in others)


def _cells_of(grid: Grid, row: int) -> list[Cell]:
    return [cell for cell in grid.cells if cell.row <= row < cell.row + cell.row_span]


def _runs_on(above: str, below: str) -> bool:
    if _NUMBER.match(above) or _NUMBER.match(below):
        return False
    return above[-1] not in _ENDS and (below[0].islower() or above[-1] in "-\u2010\u00ad,")
