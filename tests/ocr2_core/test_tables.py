from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pymupdf

from ocr2_core.blocks import BlockLabel, TextLine
from ocr2_core.geometry import from_pixels
from ocr2_core.grouping import group_lines
from ocr2_core.layout_detection import LayoutRegion
from ocr2_core.page_line import PageScale
from ocr2_core.ruling_lines import Ruling, find_ruling
from ocr2_core.tables import Cell, open_table, to_html

WIDTH_PT, HEIGHT_PT, DPI = 595, 842, 200
LineMaker = Callable[..., TextLine]


def render(rules: list[tuple[float, float, float, float]], texts: list[tuple[float, float, str]] = ()) -> np.ndarray:
    document = pymupdf.open()
    page = document.new_page(width=WIDTH_PT, height=HEIGHT_PT)
    for x0, y0, x1, y1 in rules:
        page.draw_line((x0, y0), (x1, y1), width=0.8)
    for x, y, text in texts:
        page.insert_text((x, y), text, fontsize=10, fontname="tiro")
    pixmap = page.get_pixmap(dpi=DPI, colorspace=pymupdf.csGRAY)
    return np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width).copy()


# three columns, three rows; the first row's second and third cells are one, the first column's last two as well
MERGED = [
    (100, 100, 400, 100),
    (100, 130, 400, 130),
    (200, 160, 400, 160),
    (100, 190, 400, 190),
    (100, 100, 100, 190),
    (200, 100, 200, 190),
    (300, 130, 300, 190),
    (400, 100, 400, 190),
]


def test_rules_become_cells_with_spans() -> None:
    (grid,) = find_ruling(render(MERGED), DPI).grids
    assert (grid.row_count, grid.column_count) == (3, 3)
    assert [(c.row, c.column, c.row_span, c.column_span) for c in grid.cells] == [
        (0, 0, 1, 1),
        (0, 1, 1, 2),
        (1, 0, 2, 1),
        (1, 1, 1, 1),
        (1, 2, 1, 1),
        (2, 1, 1, 1),
        (2, 2, 1, 1),
    ]
    assert np.allclose(grid.bbox_norm, from_pixels((100, 100, 400, 190), WIDTH_PT, HEIGHT_PT), atol=1.5)


def test_ruled_table_as_html(line: LineMaker) -> None:
    lines = [
        line(104, 108, "Driver", is_bold=True),
        line(204, 108, "Port & speed", is_bold=True),
        line(104, 150, "usbhid"),
        line(204, 138, "auto"),
        line(304, 138, "<none>"),
        line(204, 168, "/dev/ttyS0"),
        line(304, 168, "2400"),
    ]
    blocks = group_lines(lines, [], find_ruling(render(MERGED), DPI), width_pt=WIDTH_PT, height_pt=HEIGHT_PT)
    assert [block.label for block in blocks] == [BlockLabel.TABLE]
    assert blocks[0].text == (
        '<table><tr><th>Driver</th><th colspan="2">Port &amp; speed</th></tr>'
        '<tr><td rowspan="2">usbhid</td><td>auto</td><td>&lt;none&gt;</td></tr>'
        "<tr><td>/dev/ttyS0</td><td>2400</td></tr></table>"
    )


def test_cells_of_several_lines_are_read_from_the_top(line: LineMaker) -> None:
    lines = [line(304, 150, "second"), line(304, 138, "first"), line(204, 138, "one"), line(104, 108, "head")]
    blocks = group_lines(lines, [], find_ruling(render(MERGED), DPI), width_pt=WIDTH_PT, height_pt=HEIGHT_PT)
    assert "<td>first second</td>" in blocks[0].text


HEAD_ONLY = [(100, 100, 400, 100), (100, 120, 400, 120), (100, 200, 400, 200)] + [
    (x, 100, x, 200) for x in (100, 250, 400)
]


def test_rows_between_two_rules_are_told_by_their_lines(line: LineMaker) -> None:
    lines = [line(104, 103, "Signal"), line(254, 103, "Pin")]
    for index, (signal, pin) in enumerate([("TxD", "3"), ("RxD", "2"), ("GND", "5")]):
        lines += [line(104, 124 + 16 * index, signal), line(254, 124 + 16 * index, pin)]
    blocks = group_lines(lines, [], find_ruling(render(HEAD_ONLY), DPI), width_pt=WIDTH_PT, height_pt=HEIGHT_PT)
    assert blocks[0].text == (
        "<table><tr><td>Signal</td><td>Pin</td></tr><tr><td>TxD</td><td>3</td></tr>"
        "<tr><td>RxD</td><td>2</td></tr><tr><td>GND</td><td>5</td></tr></table>"
    )


def test_wrapped_cells_stay_one_row(line: LineMaker) -> None:
    lines = [line(104, 103, "Signal"), line(254, 103, "Meaning")]
    lines += [line(104, 124, "transmitted data", width=135), line(104, 136, "of the device", width=80)]
    lines += [line(254, 124, "goes to the third pin of the", width=140), line(254, 136, "socket", width=40)]
    blocks = group_lines(lines, [], find_ruling(render(HEAD_ONLY), DPI), width_pt=WIDTH_PT, height_pt=HEIGHT_PT)
    assert "<td>transmitted data of the device</td><td>goes to the third pin of the socket</td>" in blocks[0].text


def test_low_rows_keep_their_vertical_rules() -> None:
    rules = [(100, y, 400, y) for y in (100, 110, 120, 160)] + [(x, 100, x, 160) for x in (100, 400)]
    rules += [(250, 100, 250, 110), (250, 120, 250, 160)]
    (grid,) = find_ruling(render(rules), DPI).grids
    assert [(cell.row, cell.column_span) for cell in grid.cells] == [(0, 1), (0, 1), (1, 2), (2, 1), (2, 1)]


def test_tables_without_outer_verticals_keep_their_outer_columns() -> None:
    rules = [(100, y, 400, y) for y in (100, 130, 160)] + [(200, 100, 200, 160), (300, 100, 300, 160)]
    (grid,) = find_ruling(render(rules), DPI).grids
    assert (grid.row_count, grid.column_count, len(grid.cells)) == (2, 3, 6)


def test_a_frame_is_no_table(line: LineMaker) -> None:
    frame = [(100, 100, 400, 100), (100, 160, 400, 160), (100, 100, 100, 160), (400, 100, 400, 160)]
    ruling = find_ruling(render(frame), DPI)
    assert [len(grid.cells) for grid in ruling.grids] == [1]
    blocks = group_lines(
        [line(110, 110, "Note"), line(110, 122, "Unplug it first.")], [], ruling, width_pt=WIDTH_PT, height_pt=HEIGHT_PT
    )
    assert all(block.label is not BlockLabel.TABLE for block in blocks)


def test_text_is_not_taken_for_rules() -> None:
    text = [(60, 100 + 12 * i, "mmmmmm THE TITLE OF EEEEE TEETH __ — under the line there is more") for i in range(40)]
    ruling = find_ruling(render([], text), DPI)
    assert ruling.grids == ()
    assert [box for box in ruling.horizontal_norm if box[2] - box[0] > 80] == []


def test_blank_page_has_no_rules() -> None:
    assert find_ruling(np.full((2339, 1654), 255, np.uint8), DPI) == Ruling()


def test_broken_and_slightly_tilted_rules_are_found() -> None:
    image = render([(72, 200, 500, 201.2)])
    image[:, 700:704] = 255
    (rule,) = find_ruling(image, DPI).horizontal_norm
    assert np.allclose(rule, from_pixels((72, 200.6, 500, 200.6), WIDTH_PT, HEIGHT_PT), atol=2)


OPEN_ROWS = [
    ("Option", "Meaning", "Default"),
    ("pollinterval", "seconds between two", "2"),
    ("maxretry", "attempts", "3"),
]


def open_lines(line: LineMaker) -> list[TextLine]:
    lines = [line(x, 200 + 14 * i, row[j]) for i, row in enumerate(OPEN_ROWS) for j, x in enumerate((80, 200, 380))]
    return [*lines, line(200, 239, "readings of the device")]


def test_open_table_from_aligned_columns(line: LineMaker) -> None:
    rows = [line(x, 200 + 20 * i, row[j]) for i, row in enumerate(OPEN_ROWS) for j, x in enumerate((80, 200, 380))]
    scale = PageScale(WIDTH_PT, HEIGHT_PT)
    assert open_table([scale.line(row) for row in rows]) == (
        "<table><tr><td>Option</td><td>Meaning</td><td>Default</td></tr>"
        "<tr><td>pollinterval</td><td>seconds between two</td><td>2</td></tr>"
        "<tr><td>maxretry</td><td>attempts</td><td>3</td></tr></table>"
    )


def test_open_table_joins_rows_that_go_on_below(line: LineMaker) -> None:
    scale = PageScale(WIDTH_PT, HEIGHT_PT)
    rows = [line(80, 200, "Option"), line(200, 200, "Meaning"), line(80, 220, "a"), line(200, 220, "goes on")]
    rows += [line(200, 232, "below"), line(80, 252, "b"), line(200, 252, "ends")]
    assert open_table([scale.line(row) for row in rows]) == (
        "<table><tr><td>Option</td><td>Meaning</td></tr><tr><td>a</td><td>goes on below</td></tr>"
        "<tr><td>b</td><td>ends</td></tr></table>"
    )


def test_table_region_loses_and_doubles_no_text(line: LineMaker) -> None:
    region = LayoutRegion(BlockLabel.TABLE, from_pixels((70, 190, 520, 260), WIDTH_PT, HEIGHT_PT), 0.9)
    lines = open_lines(line)
    blocks = group_lines(lines, [region], Ruling(), width_pt=WIDTH_PT, height_pt=HEIGHT_PT)
    assert [block.label for block in blocks] == [BlockLabel.TABLE]
    words = re.sub(r"<[^>]+>", " ", blocks[0].text).split()
    assert sorted(words) == sorted(word for each in lines for word in each.text.split())


def test_prose_in_a_table_region_stays_text(line: LineMaker) -> None:
    region = LayoutRegion(BlockLabel.TABLE, from_pixels((70, 190, 520, 260), WIDTH_PT, HEIGHT_PT), 0.9)
    lines = [line(80, 200 + 12 * i, "one plain line of prose after the other", width=420) for i in range(4)]
    blocks = group_lines(lines, [region], Ruling(), width_pt=WIDTH_PT, height_pt=HEIGHT_PT)
    assert [block.label for block in blocks] == [BlockLabel.TEXT]


def test_every_row_is_written_even_without_cells_of_its_own() -> None:
    cells = [Cell(0, 0, "a", row_span=2), Cell(0, 1, "b", row_span=2)]
    assert to_html(cells, 2) == '<table><tr><td rowspan="2">a</td><td rowspan="2">b</td></tr><tr></tr></table>'
