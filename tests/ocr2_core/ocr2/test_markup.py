"""What the model writes, sound and damaged, becomes blocks without losing a word."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocr2_core.blocks import BlockLabel
from ocr2_core.ocr2.markup import LABELS, WHOLE_PAGE, PageSplitter, parse_page


def blocks(text: str) -> list[tuple[str, tuple[float, ...], str]]:
    return [(block.label.value, block.bbox_norm, block.text) for block in parse_page(text).blocks]


def test_a_sound_page() -> None:
    page = parse_page(
        "<PAGE>\n<|det|>header [115, 47, 244, 62]<|/det|>Pump P-20\n"
        "<|det|>title [98, 86, 281, 105]<|/det|># 5.1 Alarm list\n"
        "<|det|>text [98, 110, 900, 180]<|/det|>Stop the pump first.\nThen open\n the valve.\n"
        "<|det|>image [100, 200, 400, 500]<|/det|>\n"
        "<|det|>image_caption [100, 505, 400, 520]<|/det|>Figure 3\n"
        "<|det|>table [98, 530, 900, 700]<|/det|><table><tr><td>E1</td><td>Low\npressure</td></tr></table>\n"
        "<|det|>equation [98, 710, 900, 740]<|/det|>\\[ Q = A v \\]\n"
        "<|det|>code [98, 750, 900, 800]<|/det|>if x:\n    stop()\n"
        "<|det|>page_number [493, 938, 511, 952]<|/det|>12<｜end▁of▁sentence｜>"
    )
    assert page.notes == []
    assert [(block.label.value, block.bbox_norm, block.text) for block in page.blocks] == [
        ("page_header", (115, 47, 244, 62), "Pump P-20"),
        ("section_header", (98, 86, 281, 105), "5.1 Alarm list"),
        ("text", (98, 110, 900, 180), "Stop the pump first. Then open the valve."),
        ("picture", (100, 200, 400, 500), ""),
        ("caption", (100, 505, 400, 520), "Figure 3"),
        ("table", (98, 530, 900, 700), "<table><tr><td>E1</td><td>Low pressure</td></tr></table>"),
        ("formula", (98, 710, 900, 740), "Q = A v"),
        ("code", (98, 750, 900, 800), "if x:\n    stop()"),
        ("page_footer", (493, 938, 511, 952), "12"),
    ]


@pytest.mark.parametrize(
    ("written", "block", "note"),
    [
        ("<|det|>text [9, 8, 7, 6]<|/det|>a b", ("text", (7, 6, 9, 8), "a b"), "swapped corners"),
        ("<|det|>text [-5, 8, 1200, 60]<|/det|>a b", ("text", (0, 8, 999, 60), "a b"), "beyond the page"),
        ("<|det|>text [1, 2, 3]<|/det|>a b", ("text", WHOLE_PAGE, "a b"), "missing or incomplete"),
        ("<|det|>text<|/det|>a b", ("text", WHOLE_PAGE, "a b"), "missing or incomplete"),
        ("<|det|>[1, 2, 3, 4]<|/det|>a b", ("text", (1, 2, 3, 4), "a b"), "no label"),
        ("<|det|>hologram [1, 2, 3, 4]<|/det|>a b", ("text", (1, 2, 3, 4), "a b"), "'hologram' is not known"),
        ("<|det|>text [1, 2, 3, 4] a b", ("text", (1, 2, 3, 4), "a b"), "not closed"),
        ("<|det|>text [1, 2, 3, 4]\n12 bolts", ("text", (1, 2, 3, 4), "12 bolts"), "not closed"),
        ("<|det|>Some words alone", ("text", WHOLE_PAGE, "Some words alone"), "not closed"),
        ("<|det|>text [12, 3", ("text", WHOLE_PAGE, ""), "missing or incomplete"),
        ("<|det|>stray words<|/det|>a b", ("text", WHOLE_PAGE, "stray words a b"), "not known"),
        ("no tag at all", ("text", WHOLE_PAGE, "no tag at all"), "outside any region"),
    ],
)
def test_damage_is_mended_and_said(written: str, block: tuple[str, tuple[float, ...], str], note: str) -> None:
    page = parse_page(written)
    assert [(one.label.value, one.bbox_norm, one.text) for one in page.blocks] == [block]
    assert any(note in said for said in page.notes)


def test_text_before_the_first_tag_is_a_block_of_its_own() -> None:
    assert blocks("lost words <|det|>text [1, 2, 3, 4]<|/det|>found") == [
        ("text", WHOLE_PAGE, "lost words"),
        ("text", (1, 2, 3, 4), "found"),
    ]


def test_the_older_form_with_label_and_boxes_apart() -> None:
    assert blocks("<|ref|>sub_title<|/ref|><|det|>[[10, 20, 30, 40], [10, 50, 60, 70]]<|/det|>\n## Safety\n") == [
        ("section_header", (10, 20, 60, 70), "Safety")
    ]


def test_tables_wherever_they_stand() -> None:
    table = "<table><tr><td>1</td></tr></table>"
    box = (1.0, 2.0, 3.0, 4.0)
    assert blocks(f"<|det|>table [1, 2, 3, 4]<|/det|>Torque {table} see page 3") == [
        ("text", box, "Torque"),
        ("table", box, table),
        ("text", box, "see page 3"),
    ]
    assert blocks(f"<|det|>text [1, 2, 3, 4]<|/det|>{table}{table}") == [("table", box, table), ("table", box, table)]
    page = parse_page("<|det|>table [1, 2, 3, 4]<|/det|><table><tr><td>1</td><td>cut of")
    assert page.blocks[0].text == "<table><tr><td>1</td><td>cut of</td></tr></table>"
    assert page.notes == ["a table was cut off and its open cells were closed"]
    assert parse_page("<|det|>table [1, 2, 3, 4]<|/det|><table><tr><td>1</td></t").blocks[0].text == table
    plain = parse_page("<|det|>table [1, 2, 3, 4]<|/det|>E1 low E2 high")
    assert (plain.blocks[0].label, plain.blocks[0].text) == (BlockLabel.TEXT, "E1 low E2 high")


def test_a_list_in_one_region_becomes_its_items() -> None:
    assert blocks("<|det|>list [100, 200, 800, 400]<|/det|>- one\n- two\n") == [
        ("list_item", (100, 200, 800, 300), "- one"),
        ("list_item", (100, 300, 800, 400), "- two"),
    ]


def test_formulas_on_one_line_stay_two() -> None:
    assert blocks("<|det|>formula [1, 2, 3, 4]<|/det|>$a$ and $b$")[0][2] == "$a$ and $b$"
    assert blocks("<|det|>formula [1, 2, 3, 4]<|/det|>$$ a^2 $$")[0][2] == "a^2"


def test_every_label_of_ours_can_be_written() -> None:
    assert set(LABELS.values()) == set(BlockLabel)


words = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=4, max_size=8)
tags = st.sampled_from(
    [
        "<|det|>text [1, 2, 3, 4]<|/det|>",
        "<|det|>title [999, 2, 3, 4]<|/det|>",
        "<|det|>list [1, 2, 3, 4]<|/det|>",
        "<|det|>table [1, 2, 3, 4]<|/det|><table><tr><td>",
        "</td></tr></table>",
        "<|det|>",
        "<|/det|>",
        "<|det|>equation [1, 2",
        "<PAGE>",
        "\n",
        "[[1, 2]",
    ]
)


@settings(max_examples=400)
@given(st.lists(st.one_of(words.map(lambda word: f" {word} "), tags), max_size=30))
def test_no_word_is_lost_whatever_the_tags(parts: list[str]) -> None:
    written = "".join(parts)
    page = parse_page(written)
    # a word in a region type's place is told in the notes
    read = " ".join([*(block.text for block in page.blocks), *page.notes])
    said = [part.strip() for part in parts if re.fullmatch(r" [a-z]+ ", part)]
    missing = [word for word in said if word not in read]
    assert missing == []


@given(st.text(max_size=300))
def test_any_text_can_be_parsed(text: str) -> None:
    for block in parse_page(text).blocks:
        assert all(0 <= value <= 999 for value in block.bbox_norm)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_stream_is_cut_at_its_markers(size: int) -> None:
    stream = "\n<PAGE>one<PAGE>two <PAG E> <PAGE><PAGE>four"
    splitter = PageSplitter()
    pages = [page for start in range(0, len(stream), size) for page in splitter.feed(stream[start : start + size])]
    assert [*pages, *splitter.finish()] == ["one", "two <PAG E> ", "", "four"]


def test_a_stream_without_markers_is_one_page() -> None:
    splitter = PageSplitter()
    assert splitter.feed("only ") == []
    assert splitter.feed("this") == []
    assert splitter.finish() == ["only this"]
    assert PageSplitter().finish() == []
    assert [*(first := PageSplitter()).feed("before<PAGE>one"), *first.finish()] == ["before", "one"]
