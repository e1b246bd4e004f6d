"""Tables as HTML: from a ruled grid, or from columns of text that stand clearly apart."""

from __future__ import annotations

import html
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ocr2_core.page_line import Box, PageLine, rows_of
from ocr2_core.ruling_lines import Grid, GridCell


@dataclass(frozen=True, slots=True)
class Cell:
    """One table cell with its text; `is_header` where the print shows it."""

    row: int
    column: int
    text: str
    row_span: int = 1
    column_span: int = 1
    is_header: bool = False


def to_html(cells: Sequence[Cell], row_count: int) -> str:
    """`<table><tr><td>…`, cells in reading order, text escaped; every row is there, even without cells of its own."""
    rows = []
    for row in range(row_count):
        inside = sorted((cell for cell in cells if cell.row == row), key=lambda cell: cell.column)
        rows.append("<tr>" + "".join(map(_cell_html, inside)) + "</tr>")
    return "<table>" + "".join(rows) + "</table>"


def _cell_html(cell: Cell) -> str:
    tag = "th" if cell.is_header else "td"
    spans = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
    spans += f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
    return f"<{tag}{spans}>{html.escape(cell.text, quote=False)}</{tag}>"


def ruled_table(grid: Grid, boxes: dict[GridCell, Box], lines: Sequence[PageLine]) -> str:
    """HTML of a ruled table; each line goes to the cell that holds most of it (`boxes`: the cells in points)."""
    contents: dict[GridCell, list[PageLine]] = {cell: [] for cell in grid.cells}
    for line in lines:
        contents[max(grid.cells, key=lambda cell: _fit(boxes[cell], line))].append(line)
    header_rows = _header_rows(grid, contents)
    rows_inside = [_printed_rows(grid, boxes, contents, row) for row in range(grid.row_count)]
    first_row = [sum(map(len, rows_inside[:row])) for row in range(grid.row_count + 1)]
    cells = []
    for cell in grid.cells:
        parts = rows_inside[cell.row]
        for index, part in enumerate(parts):
            text = _text_of([line for line in contents[cell] if len(parts) == 1 or id(line) in part])
            span = first_row[cell.row + cell.row_span] - first_row[cell.row] if len(parts) == 1 else 1
            is_header = cell.row < header_rows
            cells.append(Cell(first_row[cell.row] + index, cell.column, text, span, cell.column_span, is_header))
    return to_html(cells, first_row[grid.row_count])


def _printed_rows(
    grid: Grid, boxes: dict[GridCell, Box], contents: dict[GridCell, list[PageLine]], row: int
) -> list[set[int]]:
    """The ids of the lines in each printed row between two rules; one set where it is one row.

    Tables are often ruled below the head only. Lines that stand side by side in most columns and do not fill their
    cells are rows of their own; lines that fill their cells are wrapped text.
    """
    cells = [cell for cell in grid.cells if cell.row <= row < cell.row + cell.row_span]
    filled = [cell for cell in cells if contents[cell]]
    whole = [{id(line) for cell in cells for line in contents[cell]}]
    if len(filled) < 2 or any(cell.row_span > 1 for cell in cells):
        return whole
    home = {id(line): cell for cell in filled for line in contents[cell]}
    printed = rows_of([line for cell in filled for line in contents[cell]])
    places = sum(len({home[id(line)] for line in row_lines}) for row_lines in printed)
    if len(printed) < 2 or places < 0.7 * len(printed) * len(filled):
        return whole
    if len(printed) >= 3 and len(filled) >= 3 and places == len(printed) * len(filled):
        return [{id(line) for line in row_lines} for row_lines in printed]
    # a line of several pieces is no running text
    above = [(inner, boxes[cell]) for cell in filled for inner in rows_of(contents[cell])[:-1]]
    ends = [(inner[0].x1, box) for inner, box in above if len(inner) == 1]
    if sum(x1 > box[2] - 0.25 * (box[2] - box[0]) for x1, box in ends) > 0.2 * len(ends):
        return whole
    return [{id(line) for line in row_lines} for row_lines in printed]


def _fit(box: Box, line: PageLine) -> float:
    width = min(box[2], line.x1) - max(box[0], line.x0)
    height = min(box[3], line.y1) - max(box[1], line.y0)
    if width > 0 and height > 0:
        return width * height
    return -abs((box[0] + box[2]) / 2 - (line.x0 + line.x1) / 2) - abs((box[1] + box[3]) / 2 - line.middle)


def _text_of(lines: Sequence[PageLine]) -> str:
    return " ".join(line.text for row in rows_of(lines) for line in row)


def _header_rows(grid: Grid, contents: dict[GridCell, list[PageLine]]) -> int:
    """1 where the whole first row is bold and the second is not, or where the row spans say so; else 0."""
    if grid.row_count < 2:
        return 0

    def bold(row: int) -> list[bool]:
        return [line.line.is_bold is True for cell in grid.cells if cell.row == row for line in contents[cell]]

    first, rest = bold(0), [value for row in range(1, grid.row_count) for value in bold(row)]
    return int(bool(first) and all(first) and not all(rest))


def open_table(lines: Sequence[PageLine]) -> str | None:
    """HTML of a table without rules, or None where its columns do not stand clearly apart.

    Columns are the vertical strips of paper that no line crosses; a row begins where the first column has text
    or where the paper between two rows is wider than inside them.
    """
    rows = rows_of(lines)
    edges = _column_edges(rows)
    if len(rows) < 2 or len(edges) < 1:
        return None
    starts = [float("-inf"), *edges]
    placed = [[(_column_of(line, starts), line) for line in row] for row in rows]
    if sum(len({column for column, _ in row}) >= 2 for row in placed) < max(2, 0.5 * len(rows)):
        return None
    merged: list[dict[int, list[PageLine]]] = []
    for row in placed:
        columns: dict[int, list[PageLine]] = {}
        for column, line in row:
            columns.setdefault(column, []).append(line)
        if merged and 0 not in columns and _is_continued(merged[-1], columns):
            for column, pieces in columns.items():
                merged[-1].setdefault(column, []).extend(pieces)
        else:
            merged.append(columns)
    first_is_header = len(merged) > 1 and _all_bold(merged[0]) and not all(map(_all_bold, merged[1:]))
    cells = [
        Cell(
            index,
            column,
            " ".join(piece.text for piece in row.get(column, [])),
            is_header=first_is_header and index == 0,
        )
        for index, row in enumerate(merged)
        for column in range(len(starts))
    ]
    return to_html(cells, len(merged))


def _all_bold(row: dict[int, list[PageLine]]) -> bool:
    return all(line.line.is_bold is True for pieces in row.values() for line in pieces)


def _is_continued(above: dict[int, list[PageLine]], row: dict[int, list[PageLine]]) -> bool:
    bottom = max(line.y1 for pieces in above.values() for line in pieces)
    first = [line for pieces in row.values() for line in pieces]
    return min(line.y0 for line in first) - bottom < 0.6 * statistics.median(line.size for line in first)


def _column_of(line: PageLine, starts: list[float]) -> int:
    return max(index for index, start in enumerate(starts) if line.x0 >= start or index == 0)


def _column_edges(rows: list[list[PageLine]]) -> list[float]:
    """x of each strip of paper between columns (points); rows of one piece that cross it (headings) do not count."""
    full = [row for row in rows if len(row) >= 2]
    if len(full) < 2:
        return []
    size = statistics.median(line.size for row in full for line in row)
    spans = sorted((line.x0, line.x1) for row in full for line in row)
    edges = []
    reach = spans[0][1]
    for x0, x1 in spans[1:]:
        if x0 - reach >= 0.6 * size:
            edges.append((x0 + reach) / 2)
        reach = max(reach, x1)
    return edges


def rows_as_table(lines: Sequence[PageLine]) -> str:
    """A table of one column, a printed row each: what is left when no columns can be told."""
    rows = rows_of(lines)
    cells = [Cell(index, 0, " ".join(line.text for line in row)) for index, row in enumerate(rows)]
    return to_html(cells, len(rows))
