from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from docling_core.types.doc import ContentLayer, DocItemLabel, SectionHeaderItem

from ocr2_core.blocks import Block, OutlineEntry, PageBlocks
from structure_recovery.markdown import to_markdown
from structure_recovery.recover import RecoveredDocument, RecoveryOptions, identity, recover

Maker = Callable[..., Block]
Pages = Callable[..., PageBlocks]


def _levels(recovered: RecoveredDocument) -> list[tuple[int, str]]:
    items = [item for item, _ in recovered.document.iterate_items() if isinstance(item, SectionHeaderItem)]
    return [(item.level, item.text) for item in items]


def _heading(block: Maker, text: str, y_pt: float, size_pt: float) -> Block:
    return block(text, y_pt, size_pt=size_pt, bold=True, label="section_header")


def test_chapters_and_sections_by_their_numbers(block: Maker, page: Pages, prose: Maker) -> None:
    pages = [
        page(
            0,
            _heading(block, "Chapter 1", 60, 18),
            _heading(block, "Overview", 90, 20),
            prose(150),
            _heading(block, "1.1 Purpose", 220, 14),
            prose(250),
            _heading(block, "1.1.1 Readers", 320, 12),
            prose(350),
        ),
        page(
            1,
            _heading(block, "Chapter 2", 60, 18),
            _heading(block, "Setup", 90, 20),
            prose(150),
            _heading(block, "2.1 Unpacking", 220, 14),
            prose(250),
        ),
    ]
    recovered = recover(pages, name="pump")
    assert _levels(recovered) == [
        (1, "Chapter 1 Overview"),
        (2, "1.1 Purpose"),
        (3, "1.1.1 Readers"),
        (1, "Chapter 2 Setup"),
        (2, "2.1 Unpacking"),
    ]
    chapter = next(item for item, _ in recovered.document.iterate_items() if isinstance(item, SectionHeaderItem))
    assert [item.charspan for item in chapter.prov] == [(0, 9), (10, 18)]


def test_parts_stand_above_chapters(block: Maker, page: Pages, prose: Maker) -> None:
    texts = [("Part I Basics", 24), ("Chapter 1 Safety", 20), ("1.1 Symbols", 14), ("Part II Use", 24)]
    texts += [("Chapter 2 Starting", 20), ("2.1 Power", 14)]
    pages = [page(i, _heading(block, text, 60, size), prose(150), prose(250)) for i, (text, size) in enumerate(texts)]
    assert [level for level, _ in _levels(recover(pages, name="m"))] == [1, 2, 3, 1, 2, 3]


def test_headings_without_numbers_by_their_size(block: Maker, page: Pages, prose: Maker) -> None:
    pages = [
        page(
            index,
            _heading(block, f"{name} of the machine", 60, 20),
            prose(110),
            _heading(block, f"Parts for {name}", 200, 14),
            prose(240),
            _heading(block, f"Tools for {name}", 330, 12),
            prose(370),
        )
        for index, name in enumerate(["Assembly", "Repair", "Storage"])
    ]
    assert [level for level, _ in _levels(recover(pages, name="m"))] == [1, 2, 3] * 3


def test_chinese_numbering(block: Maker, page: Pages) -> None:
    def text(y_pt: float) -> Block:
        row = "安装本机之前请仔细阅读本手册并且按照说明进行操作以免发生危险"
        return block(f"{row}{row}。", y_pt, lines=[row, f"{row}。"], width_pt=400)

    pages = [
        page(
            0,
            _heading(block, "第一章 概述", 60, 20),
            text(100),
            _heading(block, "第一节 用途", 200, 14),
            text(230),
            _heading(block, "一、范围", 320, 12),
            text(350),
            _heading(block, "二、对象", 440, 12),
            text(470),
        ),
        page(1, _heading(block, "第二章 安装", 60, 20), text(100), _heading(block, "第一节 准备", 200, 14), text(230)),
    ]
    assert _levels(recover(pages, name="手册")) == [
        (1, "第一章 概述"),
        (2, "第一节 用途"),
        (3, "一、范围"),
        (3, "二、对象"),
        (1, "第二章 安装"),
        (2, "第一节 准备"),
    ]


def test_numbered_steps_in_body_type_are_no_headings(block: Maker, page: Pages, prose: Maker) -> None:
    steps = [block(f"{n}. Turn the screw to the left", 200 + 20 * n, label="list_item") for n in range(1, 6)]
    pages = [
        page(0, _heading(block, "1 Setup", 60, 16), prose(100), *steps, _heading(block, "2 Use", 400, 16), prose(440))
    ]
    assert _levels(recover(pages, name="m")) == [(1, "1 Setup"), (1, "2 Use")]


def test_a_missed_title_in_body_type_is_found_by_the_gap_in_the_numbers(
    block: Maker, page: Pages, prose: Maker
) -> None:
    pages = [
        page(
            0,
            _heading(block, "1 Setup", 60, 16),
            _heading(block, "1.1 Frame", 110, 13),
            prose(140),
            block("1.2 Wheels", 230),
            prose(255),
            _heading(block, "1.3 Motor", 350, 13),
            prose(380),
        )
    ]
    assert _levels(recover(pages, name="m")) == [(1, "1 Setup"), (2, "1.1 Frame"), (2, "1.2 Wheels"), (2, "1.3 Motor")]


def test_title_contents_furniture_and_page_labels(block: Maker, page: Pages, prose: Maker) -> None:
    def entry(title: str, label: str, y_pt: float) -> Block:
        return block(f"{title} ........ {label}", y_pt, width_pt=480)

    pages = [
        page(0, block("The Pump Handbook", 200, size_pt=26, bold=True), block("A. Author", 400, size_pt=14)),
        page(
            1,
            block("Contents", 60, size_pt=18, bold=True, label="section_header"),
            entry("1 Safety", "1", 120),
            entry("1.1 Symbols", "1", 140),
            entry("2 Setup", "2", 160),
            block("ii", 770, x_pt=295),
        ),
        page(2, block("iii", 770, x_pt=295), prose(300)),
        page(
            3,
            block("The Pump Handbook", 30),
            _heading(block, "1 Safety", 60, 16),
            prose(100),
            _heading(block, "1.1 Symbols", 200, 13),
            prose(230),
            block("1", 770, x_pt=295),
        ),
        page(
            4, block("The Pump Handbook", 30), _heading(block, "2 Setup", 60, 16), prose(100), block("2", 770, x_pt=295)
        ),
    ]
    recovered = recover(pages, name="pump")
    document, report = recovered.document, recovered.report
    assert report.title == "The Pump Handbook"
    assert _levels(recovered) == [(1, "1 Safety"), (2, "1.1 Symbols"), (1, "2 Setup")]
    assert report.page_labels == {2: "ii", 3: "iii", 4: "1", 5: "2"}
    assert (report.contents.page_numbers, report.contents.entry_count, report.contents.match_rate) == ([2], 3, 1.0)
    body = [item for item, _ in document.iterate_items()]
    assert [item.text for item in body if item.label is DocItemLabel.TITLE] == ["The Pump Handbook"]
    furniture = [item.text for item in document.texts if item.content_layer is ContentLayer.FURNITURE]
    assert sorted(furniture) == ["1", "2", "The Pump Handbook", "The Pump Handbook", "ii", "iii"]
    (index,) = document.tables
    assert index.label is DocItemLabel.DOCUMENT_INDEX
    assert index.content_layer is ContentLayer.FURNITURE
    assert [cell.text for cell in index.data.table_cells] == [
        *("Contents", ""),
        *("1 Safety", "1"),
        *("1.1 Symbols", "1"),
        *("2 Setup", "2"),
    ]


def test_a_wrong_contents_page_costs_no_heading(block: Maker, page: Pages, prose: Maker) -> None:
    contents = page(
        0,
        block("Contents", 60, size_pt=18, label="section_header"),
        *[block(f"{n} Foreign matter {n} ....... {n * 7}", 100 + 20 * n, width_pt=480) for n in range(1, 7)],
    )
    body = [
        page(
            n,
            _heading(block, f"{n} Own title {n * n}", 60, 16),
            prose(100),
            _heading(block, f"{n}.1 More", 200, 13),
            prose(230),
        )
        for n in range(1, 4)
    ]
    with_contents, without = recover([contents, *body], name="m"), recover(body, name="m")
    assert _levels(with_contents) == _levels(without)
    assert with_contents.report.contents.match_rate == 0.0


def test_the_outline_of_the_file_tells_levels(block: Maker, page: Pages, prose: Maker) -> None:
    texts = ["Safety", "Symbols used", "Setup", "Power"]
    pages = [page(i, _heading(block, text, 60, 14), prose(100)) for i, text in enumerate(texts)]
    outline = [OutlineEntry(level=1 + i % 2, title=text, page_index=i) for i, text in enumerate(texts)]
    assert [level for level, _ in _levels(recover(pages, name="m"))] == [1, 1, 1, 1]
    assert [level for level, _ in _levels(recover(pages, name="m", outline=outline))] == [1, 2, 1, 2]


def test_boxes_are_on_the_page_as_it_was_before_deskewing(block: Maker, page: Pages) -> None:
    text = block("One line of text.", 395, x_pt=100, width_pt=400)
    straight = recover([page(0, text)], name="m").document
    tilted = recover([page(0, text, skew_degrees=2.0)], name="m").document
    before, after = straight.texts[0].prov[0].bbox, tilted.texts[0].prov[0].bbox
    assert [round(value) for value in before.as_tuple()] == [100, 395, 500, 405]
    assert before.coord_origin.value == "TOPLEFT"
    # 2° clockwise about the centre (300, 400): the left end rises by 200 · sin 2° = 7 pt, the right end sinks as much
    assert [round(value) for value in after.as_tuple()] == [100, 388, 500, 412]
    assert (straight.pages[1].size.width, straight.pages[1].size.height) == (600, 800)


def test_captions_are_tied_to_what_they_name(block: Maker, page: Pages, prose: Maker) -> None:
    made = page(
        0,
        prose(60),
        block("", 120, label="picture", width_pt=300, height_pt=150),
        block("Figure 1: The pump", 275),
        block("Table 1: Torques", 350),
        block("<table><tr><td>M4</td><td>3</td></tr></table>", 370, label="table", width_pt=300, height_pt=40),
    )
    document = recover([made], name="m").document
    assert [caption.resolve(document).text for caption in document.pictures[0].captions] == ["Figure 1: The pump"]
    assert [caption.resolve(document).text for caption in document.tables[0].captions] == ["Table 1: Torques"]


def test_the_report_is_json_and_names_the_evidence(block: Maker, page: Pages, prose: Maker) -> None:
    recovered = recover([page(0, _heading(block, "1 Setup", 60, 16), prose(100))], name="m")
    report = json.loads(recovered.report.model_dump_json())
    (heading,) = report["headings"]
    assert (heading["text"], heading["level"], heading["page_number"]) == ("1 Setup", 1, 1)
    assert {"engine label", "larger type", "bold"} <= {evidence["name"] for evidence in heading["evidence"]}
    assert heading["level_votes"] == {"style": 1, "number": 1}


def test_pages_that_failed_leave_gaps_and_the_order_given_makes_no_difference(
    block: Maker, page: Pages, prose: Maker
) -> None:
    contents = [block(f"{n} Chapter of {n} ....... {n}", 100 + 20 * n, width_pt=480) for n in range(1, 6)]
    pages = [page(3, block("Contents", 60, size_pt=18), *contents)]
    pages += [
        page(n + 5, _heading(block, f"{n} Chapter of {n}", 60, 16), prose(100), block(str(n), 770, x_pt=295))
        for n in (1, 2, 4, 5)
    ]
    recovered = recover(pages[::-1], name="m")
    assert _levels(recovered) == [(1, f"{n} Chapter of {n}") for n in (1, 2, 4, 5)]
    assert recovered.report.contents.page_numbers == [4]
    assert [heading.page_number for heading in recovered.report.headings] == [7, 8, 10, 11]
    assert recovered.report.page_labels == {7: "1", 8: "2", 9: "3", 10: "4", 11: "5"}


def test_an_empty_document(page: Pages) -> None:
    recovered = recover([page(0), page(1)], name="empty")
    assert recovered.document.name == "empty"
    assert list(recovered.document.pages) == [1, 2]
    assert recovered.report.headings == []
    assert to_markdown(recovered.document) == ""
    assert recover([], name="none").document.pages == {}


def test_a_page_given_twice_is_refused(page: Pages) -> None:
    with pytest.raises(ValueError, match="page 1 comes twice"):
        recover([page(0), page(0)], name="m")


def test_identity_tells_options_apart() -> None:
    assert identity() == identity(RecoveryOptions())
    assert identity() != identity(RecoveryOptions(use_contents=False))
