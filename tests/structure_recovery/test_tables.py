from __future__ import annotations

from structure_recovery.tables import append_rows, parse_table, to_table_data


def test_spans_push_later_cells_as_a_browser_does() -> None:
    grid = parse_table(
        "<table><tr><td rowspan='2'>A</td><td colspan='2'>B</td></tr><tr><td>C</td><td>D</td></tr>"
        "<tr><td>E</td><td>F</td><td>G</td></tr></table>"
    )
    assert (grid.row_count, grid.column_count) == (3, 3)
    assert grid.texts() == [["A", "B", ""], ["", "C", "D"], ["E", "F", "G"]]


def test_entities_breaks_and_text_outside_cells_are_kept() -> None:
    grid = parse_table("<table>stray<tr><td>a &lt; b<br>c</td><td>&amp;lt;</td></tr></table>")
    assert grid.texts() == [["stray", ""], ["a < b c", "&lt;"]]


def test_unclosed_cells_end_where_the_next_begins() -> None:
    assert parse_table("<table><tr><td>1<td>2<tr><td>3<td>4").texts() == [["1", "2"], ["3", "4"]]


def test_plain_text_becomes_rows() -> None:
    assert parse_table("a\tb\nc\td").texts() == [["a", "b"], ["c", "d"]]
    assert parse_table("| a | b |\n| c | d |").texts() == [["a", "b"], ["c", "d"]]
    assert parse_table("").texts() == []


def test_rows_are_appended_below_without_the_repeated_header() -> None:
    first = parse_table("<table><tr><th>H</th></tr><tr><td>1</td></tr></table>")
    second = parse_table("<table><tr><th>H</th></tr><tr><td>2</td></tr></table>")
    assert append_rows(first, second, 1).texts() == [["H"], ["1"], ["2"]]


def test_table_data_keeps_spans_and_header() -> None:
    data = to_table_data(parse_table("<table><tr><th colspan=2>H</th></tr><tr><td>1</td><td>2</td></tr></table>"))
    head = data.table_cells[0]
    assert (head.text, head.col_span, head.end_col_offset_idx, head.column_header) == ("H", 2, 2, True)
    assert (data.num_rows, data.num_cols) == (2, 2)
