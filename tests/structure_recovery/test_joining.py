from __future__ import annotations

from collections.abc import Callable

from ocr2_core.blocks import Block, PageBlocks
from structure_recovery.elements import pieces_of
from structure_recovery.joining import Joined, element_of, join_elements, split_marker
from structure_recovery.reading_order import order_page

Maker = Callable[..., Block]


def _join(*pages: PageBlocks) -> Joined:
    return join_elements([element_of(piece) for page in pages for piece in order_page(pieces_of(page))])


def _cut(block: Maker, page: Callable[..., PageBlocks], first: str, second: str) -> Joined:
    """A table at the end of a page, and one set alike at the top of the next."""
    return _join(
        page(0, block(first, 600, label="table", width_pt=480, height_pt=170)),
        page(1, block(second, 60, label="table", width_pt=480, height_pt=40)),
    )


def _rows(html: str) -> str:
    return f"<table>{html}</table>"


def test_a_paragraph_broken_by_a_page_inside_a_word(block: Maker, page: Callable[..., PageBlocks]) -> None:
    joined = _join(
        page(0, block("The pump must be discon-", 700, lines=["The pump must", "be discon-"])),
        page(1, block("nected before service.", 60)),
    )
    (element,) = joined.elements
    assert element.text == "The pump must be disconnected before service."
    assert element.spans == [(0, 23), (23, 45)]
    assert [element.text[a:b] for a, b in element.spans] == ["The pump must be discon", "nected before service."]
    assert [piece.page_index for piece in element.pieces] == [0, 1]
    assert joined.paragraph_joins == 1


def test_a_compound_keeps_the_hyphen_it_has_elsewhere(block: Maker, page: Callable[..., PageBlocks]) -> None:
    joined = _join(
        page(0, block("A high-voltage line.", 100), block("Beware of the high-", 700)),
        page(1, block("voltage side of it.", 60)),
    )
    assert joined.elements[1].text == "Beware of the high-voltage side of it."


def test_chinese_halves_join_without_a_space(block: Maker, page: Callable[..., PageBlocks]) -> None:
    joined = _join(
        page(0, block("安装之前请先关闭电源并且", 700, lines=["安装之前请", "先关闭电源并且"], width_pt=480)),
        page(1, block("等待五分钟。", 60)),
    )
    assert [element.text for element in joined.elements] == ["安装之前请先关闭电源并且等待五分钟。"]


def test_a_finished_sentence_and_a_new_one_stay_apart(block: Maker, page: Callable[..., PageBlocks]) -> None:
    joined = _join(page(0, block("It ends here.", 700)), page(1, block("and then more.", 60)))
    assert len(joined.elements) == 2


def test_a_picture_between_the_halves_does_not_part_them(block: Maker, page: Callable[..., PageBlocks]) -> None:
    joined = _join(
        page(0, block("Turn the wheel until the", 700)),
        page(1, block("", 60, label="picture", width_pt=300, height_pt=100), block("mark can be seen.", 200)),
    )
    assert [element.text for element in joined.elements] == ["Turn the wheel until the mark can be seen.", ""]


def test_a_list_item_goes_on_in_the_next_column(block: Maker, page: Callable[..., PageBlocks]) -> None:
    joined = _join(
        page(0, block("• Check the oil level and", 700, label="list_item")),
        page(1, block("fill it up if needed.", 60), block("• Close the lid.", 100, label="list_item")),
    )
    assert [element.text for element in joined.elements] == [
        "• Check the oil level and fill it up if needed.",
        "• Close the lid.",
    ]


def test_a_table_goes_on_and_its_repeated_header_is_set_aside(block: Maker, page: Callable[..., PageBlocks]) -> None:
    head = "<tr><th>Part</th><th>Torque</th></tr>"
    joined = _join(
        page(0, block(_rows(head + "<tr><td>M4</td><td>3</td></tr>"), 600, label="table", width_pt=480, height_pt=150)),
        page(1, block(_rows(head + "<tr><td>M6</td><td>9</td></tr>"), 60, label="table", width_pt=480, height_pt=80)),
    )
    (table,) = joined.elements
    assert table.grid is not None
    assert table.grid.texts() == [["Part", "Torque"], ["M4", "3"], ["M6", "9"]]
    assert [element.text for element in joined.repeated_headers] == ["Part | Torque"]
    assert [piece.page_index for piece in table.pieces] == [0, 1]


def test_a_table_without_header_goes_on_where_the_grid_aligns(block: Maker, page: Callable[..., PageBlocks]) -> None:
    first = _rows("<tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr>")
    joined = _cut(block, page, first, _rows("<tr><td>3</td><td>4</td></tr>"))
    (table,) = joined.elements
    assert table.grid is not None
    assert table.grid.texts() == [["A", "B"], ["1", "2"], ["3", "4"]]
    assert joined.repeated_headers == []


def test_different_tables_stay_apart(block: Maker, page: Callable[..., PageBlocks]) -> None:
    first = _rows("<tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr>")
    other_header = _rows("<tr><th>C</th><th>D</th></tr><tr><td>3</td><td>4</td></tr>")
    more_columns = _rows("<tr><td>3</td><td>4</td><td>5</td></tr>")
    for second in (other_header, more_columns):
        joined = _cut(block, page, first, second)
        assert len(joined.elements) == 2


def test_a_row_cut_by_the_page_is_one_row_again(block: Maker, page: Callable[..., PageBlocks]) -> None:
    first = _rows(
        "<tr><th>Part</th><th>Remark</th></tr><tr><td>Nut</td><td>Grease it.</td></tr>"
        "<tr><td>Seal</td><td>Replace it toge-</td></tr>"
    )
    second = _rows("<tr><td></td><td>ther with the nut.</td></tr><tr><td>Pin</td><td>Spare.</td></tr>")
    (table,) = _cut(block, page, first, second).elements
    assert table.grid is not None
    assert table.grid.texts() == [
        ["Part", "Remark"],
        ["Nut", "Grease it."],
        ["Seal", "Replace it together with the nut."],
        ["Pin", "Spare."],
    ]
    assert [piece.page_index for piece in table.pieces] == [0, 1]


def test_a_row_whose_group_is_named_once_is_not_taken_for_a_rest(block: Maker, page: Callable[..., PageBlocks]) -> None:
    first = _rows(
        "<tr><th>Group</th><th>Part</th></tr><tr><td>Drive</td><td>motor</td></tr><tr><td></td><td>belt</td></tr>"
    )
    second = _rows("<tr><td></td><td>pulley</td></tr><tr><td>Fan</td><td>rotor</td></tr>")
    (table,) = _cut(block, page, first, second).elements
    assert table.grid is not None
    assert [row[1] for row in table.grid.texts()] == ["Part", "motor", "belt", "pulley", "rotor"]


def test_columns_empty_on_the_next_page_are_padded(block: Maker, page: Callable[..., PageBlocks]) -> None:
    first = _rows(
        "<tr><th>Part</th><th>Count</th><th>Remark</th></tr><tr><td>Nut</td><td>4</td><td></td></tr>"
        "<tr><td>Pin</td><td>2</td><td>spare</td></tr>"
    )
    second = _rows("<tr><td>Ring</td><td>8</td></tr>")
    (table,) = _cut(block, page, first, second).elements
    assert table.grid is not None
    assert table.grid.texts()[-1] == ["Ring", "8", ""]


def test_words_below_columns_of_numbers_begin_another_table(block: Maker, page: Callable[..., PageBlocks]) -> None:
    first = _rows("<tr><td>Part</td><td>Count</td></tr><tr><td>Nut</td><td>4</td></tr><tr><td>Pin</td><td>2</td></tr>")
    second = _rows("<tr><td>Symptom</td><td>Cause</td></tr><tr><td>Hum</td><td>3</td></tr>")
    joined = _cut(block, page, first, second)
    assert len(joined.elements) == 2


def test_a_new_caption_parts_two_tables(block: Maker, page: Callable[..., PageBlocks]) -> None:
    rows = _rows("<tr><td>1</td><td>2</td></tr>")
    joined = _join(
        page(0, block(rows, 600, label="table", width_pt=480, height_pt=170)),
        page(
            1, block("Table 2: More", 50, label="caption"), block(rows, 70, label="table", width_pt=480, height_pt=40)
        ),
    )
    assert [element.label.value for element in joined.elements] == ["table", "caption", "table"]


def test_markers() -> None:
    texts = ("• Check", "- Check", "1. Check", "a) Check", "(2) Check", "Check")
    assert [split_marker(text)[0] for text in texts] == ["•", "-", "1.", "a)", "(2)", ""]
    assert {split_marker(text)[1] for text in texts} == {"Check"}
