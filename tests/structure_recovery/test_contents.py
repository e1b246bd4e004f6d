from __future__ import annotations

from collections.abc import Callable

from ocr2_core.blocks import Block, PageBlocks
from structure_recovery.contents import find_contents, match_entries
from structure_recovery.elements import pieces_of
from structure_recovery.furniture import PageLabel

Maker = Callable[..., Block]


def _entry(block: Maker, title: str, label: str, y_pt: float, x_pt: float = 60) -> Block:
    return block(f"{title} . . . . . . . . . {label}", y_pt, x_pt=x_pt, width_pt=540 - x_pt)


def test_contents_over_two_pages_with_roman_labels_and_indents(
    block: Maker, page: Callable[..., PageBlocks], prose: Maker
) -> None:
    first = page(
        0,
        block("Contents", 60, size_pt=18),
        _entry(block, "Preface", "iii", 120),
        _entry(block, "1 Safety", "1", 140),
        _entry(block, "1.1 Symbols", "1", 160, x_pt=80),
        _entry(block, "1.2 Duties", "4", 180, x_pt=80),
    )
    second = page(
        1,
        # the margins of a left page are shifted by 20 pt
        block("2 Setup ..... 7", 60, x_pt=80, width_pt=480),
        block("2.1 Unpacking the parts and checking them", 80, x_pt=100, width_pt=300),
        block("for damage ..... 7", 92, x_pt=100, width_pt=460),
        block("2.2 Mounting ..... 9", 112, x_pt=100, width_pt=460),
    )
    third = page(2, block("Preface", 60, size_pt=18), prose(200), prose(300))
    contents = find_contents([pieces_of(p) for p in (first, second, third)])

    assert contents.page_indexes == (0, 1)
    assert [(e.title, e.page_label, e.indent) for e in contents.entries] == [
        ("Preface", PageLabel(3, True), 0),
        ("1 Safety", PageLabel(1, False), 0),
        ("1.1 Symbols", PageLabel(1, False), 1),
        ("1.2 Duties", PageLabel(4, False), 1),
        ("2 Setup", PageLabel(7, False), 0),
        ("2.1 Unpacking the parts and checking them for damage", PageLabel(7, False), 1),
        ("2.2 Mounting", PageLabel(9, False), 1),
    ]
    assert len(contents.pieces) == 9


def test_a_wrapped_entry_is_one_entry(block: Maker, page: Callable[..., PageBlocks]) -> None:
    made = page(
        0,
        block("Contents", 60, size_pt=18),
        _entry(block, "1 Safety", "1", 120),
        block("2 Unpacking the parts and checking them", 140, width_pt=300),
        _entry(block, "for damage", "7", 152),
        _entry(block, "3 Mounting", "9", 172),
    )
    entries = find_contents([pieces_of(made)]).entries
    assert [entry.title for entry in entries] == [
        "1 Safety",
        "2 Unpacking the parts and checking them for damage",
        "3 Mounting",
    ]


def test_a_list_of_figures_is_no_part_of_the_tree(block: Maker, page: Callable[..., PageBlocks]) -> None:
    made = page(
        0,
        block("List of Figures", 60, size_pt=18),
        *[_entry(block, f"1.{n} A picture of part {n}", str(n), 100 + 20 * n) for n in range(1, 6)],
    )
    contents = find_contents([pieces_of(made)])
    assert len(contents.entries) == 5
    assert contents.section_entries == []


def test_a_back_of_book_index_is_not_taken_for_contents(block: Maker, page: Callable[..., PageBlocks]) -> None:
    words = ["amplifier, 12", "antenna, 7", "battery, 3", "bolt, 44", "cable, 19", "clamp, 2"]
    made = page(0, *[block(word, 100 + 14 * n, x_pt=60) for n, word in enumerate(words)])
    assert find_contents([pieces_of(made)]).entries == ()


def test_contents_that_an_engine_took_for_a_table(block: Maker, page: Callable[..., PageBlocks]) -> None:
    rows = [("1 Safety", 3), ("1.1 Symbols", 3), ("1.2 Duties", 5), ("2 Setup", 8), ("2.1 Mounting", 9)]
    html = "".join(f"<tr><td>{title} ....</td><td>{number}</td></tr>" for title, number in rows)
    made = page(0, block(f"<table>{html}</table>", 100, label="table", width_pt=480, height_pt=200))
    contents = find_contents([pieces_of(made)])
    assert [entry.title for entry in contents.entries] == [title for title, _ in rows]
    assert len(contents.pieces) == 1


def test_a_table_of_numbers_is_not_taken_for_contents(block: Maker, page: Callable[..., PageBlocks]) -> None:
    rows = [("Torque", 3), ("Weight", 30), ("Height", 5), ("Length", 8), ("Width", 2)]
    html = "".join(f"<tr><td>{title}</td><td>{number}</td></tr>" for title, number in rows)
    made = page(0, block(f"<table>{html}</table>", 100, label="table", width_pt=480, height_pt=200))
    assert find_contents([pieces_of(made)]).entries == ()


def test_entries_find_their_headings_through_page_labels_and_misread_letters(
    block: Maker, page: Callable[..., PageBlocks]
) -> None:
    made = page(
        0,
        block("Contents", 60, size_pt=18),
        _entry(block, "1 Safety instructions", "1", 120),
        _entry(block, "2 Maintenance", "5", 140),
        _entry(block, "Overview", "5", 160),
        _entry(block, "Overview", "9", 180),
    )
    entries = find_contents([pieces_of(made)]).entries
    labels = {index: PageLabel(index - 3, False) for index in range(4, 20)}
    titles = [("Safety instructlons", 4), ("Overview", 8), ("2 Maintenance", 8), ("Overview", 12), ("Another", 12)]
    assert match_entries(entries, titles, labels) == {0: 0, 2: 1, 1: 2, 3: 3}
