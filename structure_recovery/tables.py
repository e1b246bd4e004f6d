"""Tables: the HTML an engine writes as a grid of cells, and that grid as docling-core's TableData."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docling_core.types.doc.document import TableData


@dataclass(slots=True)
class Cell:
    """One cell at its place in the grid (0-based), with its spans."""

    row: int
    column: int
    text: str
    row_span: int = 1
    column_span: int = 1
    is_header: bool = False


@dataclass(slots=True)
class Grid:
    """A table's cells; rows and columns are counted with spans unfolded."""

    cells: list[Cell] = field(default_factory=list)
    row_count: int = 0
    column_count: int = 0

    def texts(self) -> list[list[str]]:
        """The text of every place of the grid; a spanning cell's text stands at its first place only."""
        rows = [[""] * self.column_count for _ in range(self.row_count)]
        for cell in self.cells:
            rows[cell.row][cell.column] = cell.text
        return rows

    def header_row_count(self) -> int:
        """How many leading rows are marked as header throughout."""
        count = 0
        for row in range(self.row_count):
            members = [cell for cell in self.cells if cell.row == row]
            if not members or not all(cell.is_header for cell in members):
                break
            count += 1
        return count


def parse_table(text: str) -> Grid:
    """Read `<table>…</table>`; other text becomes one row a line, split at tabs or `|`. No text is lost."""
    if "<t" not in text.lower():
        rows = [_split_row(line) for line in text.splitlines() if line.strip()]
        cells = [Cell(r, c, value) for r, row in enumerate(rows) for c, value in enumerate(row)]
        return Grid(cells, len(rows), max((len(row) for row in rows), default=0))
    parser = _TableParser()
    parser.feed(text)
    parser.close()
    return parser.grid()


def append_rows(first: Grid, second: Grid, skip_rows: int = 0) -> Grid:
    """`second` without its first `skip_rows` rows set below `first`."""
    moved = [
        Cell(
            cell.row - skip_rows + first.row_count,
            cell.column,
            cell.text,
            cell.row_span,
            cell.column_span,
            cell.is_header,
        )
        for cell in second.cells
        if cell.row >= skip_rows
    ]
    rows = first.row_count + second.row_count - skip_rows
    return Grid([*first.cells, *moved], rows, max(first.column_count, second.column_count))


def to_table_data(grid: Grid) -> TableData:
    from docling_core.types.doc.document import TableCell, TableData

    cells = [
        TableCell(
            text=cell.text,
            row_span=cell.row_span,
            col_span=cell.column_span,
            start_row_offset_idx=cell.row,
            end_row_offset_idx=cell.row + cell.row_span,
            start_col_offset_idx=cell.column,
            end_col_offset_idx=cell.column + cell.column_span,
            column_header=cell.is_header,
        )
        for cell in sorted(grid.cells, key=lambda cell: (cell.row, cell.column))
    ]
    return TableData(table_cells=cells, num_rows=grid.row_count, num_cols=grid.column_count)


def _split_row(line: str) -> list[str]:
    separator = "\t" if "\t" in line else "|" if "|" in line else None
    if separator is None:
        return [line.strip()]
    return [cell.strip() for cell in line.strip().strip("|").split(separator)]


class _TableParser(HTMLParser):
    """Places cells on a grid as a browser does: spans of earlier rows push later cells to the right."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._cells: list[Cell] = []
        self._taken: set[tuple[int, int]] = set()
        self._row = -1
        self._column = 0
        self._open: Cell | None = None
        self._text: list[str] = []
        self._in_head = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "thead":
            self._in_head = True
        elif tag == "tr":
            self._close()
            self._row, self._column = self._row + 1, 0
        elif tag in ("td", "th"):
            self._close()
            self._row = max(self._row, 0)
            while (self._row, self._column) in self._taken:
                self._column += 1
            spans = dict(attrs)
            self._open = Cell(
                self._row,
                self._column,
                "",
                _span(spans.get("rowspan")),
                _span(spans.get("colspan")),
                tag == "th" or self._in_head,
            )
        elif tag == "br" and self._open is not None:
            self._text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._close()
        elif tag == "thead":
            self._in_head = False

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._text.append(data)
        elif data.strip():
            # Text outside any cell (broken HTML) becomes a row of its own rather than be lost.
            self._row, self._column = self._row + 1, 0
            self._cells.append(Cell(self._row, 0, data.strip()))
            self._taken.add((self._row, 0))

    def grid(self) -> Grid:
        self._close()
        rows = max((cell.row + cell.row_span for cell in self._cells), default=0)
        columns = max((cell.column + cell.column_span for cell in self._cells), default=0)
        return Grid(self._cells, rows, columns)

    def _close(self) -> None:
        if self._open is None:
            return
        cell, self._open = self._open, None
        cell.text = re.sub(r"\s+", " ", "".join(self._text)).strip()
        self._text = []
        for row in range(cell.row, cell.row + cell.row_span):
            for column in range(cell.column, cell.column + cell.column_span):
                self._taken.add((row, column))
        self._cells.append(cell)
        self._column = cell.column + cell.column_span


def _span(value: str | None) -> int:
    return min(max(int(value), 1), 1000) if value and value.isdigit() else 1
