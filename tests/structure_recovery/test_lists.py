"""Nested lists, notes and references: what text is, and where it points to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from docling_core.types.doc import GroupItem, TextItem

from ocr2_core.blocks import Block, PageBlocks
from structure_recovery.markdown import to_markdown
from structure_recovery.recover import recover

Maker = Callable[..., Block]


def test_lists_nest_by_indent_and_end_where_it_ends(block: Maker, page: Callable[..., PageBlocks]) -> None:
    items = [("1. Open the case", 60), ("a) Loosen the screws", 90), ("b) Lift the lid", 90), ("2. Clean it", 60)]
    blocks = [block(text, 100 + 20 * n, x_pt=x, label="list_item") for n, (text, x) in enumerate(items)]
    document = recover([page(0, *blocks)], name="m").document
    assert to_markdown(document) == (
        "1. Open the case\n    - a) Loosen the screws\n    - b) Lift the lid\n2. Clean it\n"
    )


def test_lists_nest_by_their_markers_where_all_is_set_alike(block: Maker, page: Callable[..., PageBlocks]) -> None:
    items = ["1. Open", "(a) Screws", "(b) Lid", "2. Clean", "• brush", "• cloth", "3. Close"]
    blocks = [block(text, 100 + 20 * n, label="list_item") for n, text in enumerate(items)]
    first, second = page(0, *blocks[:4]), page(1, *blocks[4:])
    assert to_markdown(recover([first, second], name="m").document) == (
        "1. Open\n    - (a) Screws\n    - (b) Lid\n2. Clean\n    - brush\n    - cloth\n3. Close\n"
    )


def test_a_paragraph_ends_a_list(block: Maker, page: Callable[..., PageBlocks]) -> None:
    blocks = [
        block("• one", 100, label="list_item"),
        block("Then wait for a minute before you go on.", 120),
        block("• two", 140, x_pt=90, label="list_item"),
    ]
    assert to_markdown(recover([page(0, *blocks)], name="m").document) == (
        "- one\n\nThen wait for a minute before you go on.\n\n- two\n"
    )


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (("Warning: The plates stay hot.",), "note 1: warning"),
        (("ACHTUNG", "Die Platten bleiben heiss."), "note 1: achtung"),
        (("注意：请先断开电源。",), "note 1: 注意"),
    ],
)
def test_a_note_is_a_block_of_its_own(
    texts: tuple[str, ...], name: str, block: Maker, page: Callable[..., PageBlocks], prose: Callable[[float], Block]
) -> None:
    blocks = [block(text, 300 + 14 * n) for n, text in enumerate(texts)]
    recovered = recover([page(0, prose(100), *blocks, prose(400))], name="m")
    (group,) = [each for each in recovered.document.groups if isinstance(each, GroupItem)]
    inside = [child.resolve(recovered.document) for child in group.children]
    assert (group.name, tuple(each.text for each in inside if isinstance(each, TextItem))) == (name, texts)
    assert recovered.report.note_count == 1


def test_a_sentence_that_begins_with_such_a_word_is_no_note(block: Maker, page: Callable[..., PageBlocks]) -> None:
    blocks = [block("Note that the pump is sealed.", 100), block("Danger money is paid by the hour.", 120)]
    assert recover([page(0, *blocks)], name="m").report.note_count == 0


def test_references_lead_to_sections_tables_figures_pages_and_footnotes(
    block: Maker, page: Callable[..., PageBlocks], prose: Callable[[float], Block]
) -> None:
    table = "<table><tr><td>M4</td><td>3</td></tr><tr><td>M6</td><td>9</td></tr></table>"
    pages = [
        page(
            0,
            block("1 Setup", 60, size_pt=16, bold=True),
            block("Tighten as in Table 2 (see section 2.1), never more; see also 9.4 and page 12.", 100),
            block("The seal1 is in figure 7.", 130),
            prose(200),
            block("1 Order number 4711.", 700, size_pt=8, label="footnote"),
            block("11", 770, x_pt=300),
        ),
        page(
            1,
            prose(60),
            block("2 Care", 140, size_pt=16, bold=True),
            prose(200),
            block("2.1 Oil", 300, size_pt=13, bold=True),
            prose(330),
            block("Table 2: Torques", 440, label="caption"),
            block(table, 460, label="table", width_pt=300, height_pt=60),
            block("12", 770, x_pt=300),
        ),
        page(2, prose(60), prose(200), block("13", 770, x_pt=300)),
    ]
    report = recover(pages, name="m").report
    found = [
        (each.kind, each.text, each.target, each.page_number, each.target_page_number) for each in report.references
    ]
    assert sorted(found) == [
        ("footnote", "seal1", "1 Order number 4711.", 1, 1),
        ("page", "page 12", "page 12", 1, 2),
        ("section", "section 2.1", "2.1 Oil", 1, 2),
        ("table", "Table 2", "Table 2: Torques", 1, 2),
    ]
    # 9.4 and figure 7 are not in the document
    assert report.lost_reference_count == 2


def test_references_in_chinese_and_japanese_text(block: Maker, page: Callable[..., PageBlocks]) -> None:
    pages = [
        page(
            0,
            block("第1章 安装", 60, size_pt=16, bold=True),
            block("接线方法请参见第2章，参数如表3所示。", 100, lines=["接线方法请参见第2章，参数如表3所示。"]),
            block("詳細は図4を参照してください。", 130, lines=["詳細は図4を参照してください。"]),
        ),
        page(
            1,
            block("电缆必须使用屏蔽线，长度不超过五米，并且单独敷设。", 60),
            block("第2章 接线", 140, size_pt=16, bold=True),
            block("表3 参数", 440, label="caption"),
            block("<table><tr><td>M4</td><td>3</td></tr></table>", 460, label="table", width_pt=300, height_pt=60),
        ),
    ]
    report = recover(pages, name="m").report
    assert [(each.kind, each.text, each.target) for each in report.references] == [
        ("section", "第2章", "第2章 接线"),
        ("table", "表3", "表3 参数"),
    ]
    assert report.lost_reference_count == 1
