from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocr2_core.blocks import Block, BlockLabel, TextLine
from ocr2_core.geometry import BBoxNorm, from_pixels
from ocr2_core.grouping import group_lines
from ocr2_core.layout_detection import LayoutRegion
from ocr2_core.ruling_lines import Ruling

WIDTH_PT, HEIGHT_PT = 595, 842
LineMaker = Callable[..., TextLine]

BODY = [
    "The supply has to be connected to the serial port before the driver",
    "is started, for it asks the device for its name and its type. When",
    "nothing answers within two seconds the driver gives up and writes a",
    "line to the system log that names the port and the speed it tried.",
]


def group(lines: Sequence[TextLine], regions: Sequence[LayoutRegion] = (), ruling: Ruling | None = None) -> list[Block]:
    return group_lines(lines, regions, ruling or Ruling(), width_pt=WIDTH_PT, height_pt=HEIGHT_PT)


def shape(blocks: Sequence[Block]) -> list[tuple[str, str]]:
    return [(block.label.value, block.text) for block in blocks]


def body(line: LineMaker, y: float, x: float = 72, lines: Sequence[str] = tuple(BODY)) -> list[TextLine]:
    return [line(x, y + 12 * index, text, width=440) for index, text in enumerate(lines)]


def box(x0: float, y0: float, x1: float, y1: float) -> BBoxNorm:
    return from_pixels((x0, y0, x1, y1), WIDTH_PT, HEIGHT_PT)


def test_heading_is_its_own_block(line: LineMaker) -> None:
    blocks = group([*body(line, 120), line(72, 192, "2.1 Connecting the supply", size=13), *body(line, 222)])
    assert shape(blocks) == [
        ("text", " ".join(BODY)),
        ("section_header", "2.1 Connecting the supply"),
        ("text", " ".join(BODY)),
    ]


def test_bold_heading_of_body_size_is_separated(line: LineMaker) -> None:
    blocks = group([*body(line, 120), line(72, 186, "Before you begin", is_bold=True), *body(line, 204)])
    assert shape(blocks)[1] == ("section_header", "Before you begin")
    assert len(blocks) == 3


def test_heading_of_two_printed_lines_stays_one_block(line: LineMaker) -> None:
    lines = [
        *body(line, 120),
        line(72, 200, "3 Reading the state of every outlet of a", size=16, width=400),
        line(96, 219, "daisy chain", size=16),
        *body(line, 260),
    ]
    assert shape(group(lines))[1] == ("section_header", "3 Reading the state of every outlet of a daisy chain")


def test_paragraphs_by_space_and_by_indent(line: LineMaker) -> None:
    spaced = group([*body(line, 120), *body(line, 178)])
    assert [block.text for block in spaced] == [" ".join(BODY)] * 2
    second = [line(86, 168, BODY[0], width=426), *body(line, 180, lines=BODY[1:])]
    indented = group([*body(line, 120), *second])
    assert [block.text for block in indented] == [" ".join(BODY)] * 2


def test_a_line_that_ends_short_ends_its_paragraph(line: LineMaker) -> None:
    lines = body(line, 120, lines=[*BODY[:3], "It tries once more.", *BODY])
    lines[3] = line(72, 156, "It tries once more.", width=90)
    assert [len(block.lines) for block in group(lines)] == [4, 4]


def test_soft_hyphens_are_joined_and_real_ones_kept(line: LineMaker) -> None:
    lines = body(line, 120, lines=["the admin-", "istrator of a UPS-", "Server reads it"])
    assert group(lines)[0].text == "the administrator of a UPS-Server reads it"


def test_list_items_keep_their_hanging_lines(line: LineMaker) -> None:
    lines = [
        *body(line, 120),
        line(80, 186, "• the first item runs over its line and", width=432),
        line(90, 198, "goes on below"),
        line(80, 210, "• the second"),
        line(80, 222, "3. a numbered one"),
        line(80, 234, "- a dash"),
    ]
    assert shape(group(lines))[1:] == [
        ("list_item", "• the first item runs over its line and goes on below"),
        ("list_item", "• the second"),
        ("list_item", "3. a numbered one"),
        ("list_item", "- a dash"),
    ]


def test_bullets_found_apart_from_their_text_are_joined(line: LineMaker) -> None:
    lines = [*body(line, 120), line(80, 186, "•", width=4), line(92, 186, "the first item")]
    assert shape(group(lines))[1] == ("list_item", "• the first item")


def test_code_keeps_lines_and_indentation(line: LineMaker) -> None:
    lines = [
        *body(line, 120),
        line(90, 186, "if (ready) {", is_monospace=True),
        line(114, 198, "start(port);", is_monospace=True),
        line(90, 210, "}", is_monospace=None),
        line(90, 222, "# upsdrvctl start", is_monospace=True),
        *body(line, 252),
    ]
    assert shape(group(lines)) == [
        ("text", " ".join(BODY)),
        ("code", "if (ready) {\n    start(port);\n}\n# upsdrvctl start"),
        ("text", " ".join(BODY)),
    ]


def test_a_page_set_in_typewriter_face_is_not_all_code(line: LineMaker) -> None:
    lines = [line(72, 120 + 12 * i, text, is_monospace=True, width=440) for i, text in enumerate(BODY * 3)]
    assert {block.label for block in group(lines)} == {BlockLabel.TEXT}


def test_two_columns_are_read_one_after_the_other(line: LineMaker) -> None:
    left = [line(60, 120 + 12 * i, f"left column line {i} is full of words", width=220) for i in range(8)]
    right = [line(310, 120 + 12 * i, f"right column line {i} has other words", width=220) for i in range(8)]
    title = line(60, 90, "A heading over both of the two columns", size=18, width=440)
    blocks = group([title, *(piece for pair in zip(left, right, strict=True) for piece in pair)])
    assert [block.label.value for block in blocks] == ["section_header", "text", "text"]
    assert blocks[1].text == " ".join(piece.text for piece in left)
    assert blocks[2].text == " ".join(piece.text for piece in right)


def test_two_columns_of_short_lines_are_read_one_after_the_other(line: LineMaker) -> None:
    def entries(x: float, names: str, gaps: Sequence[int]) -> list[TextLine]:
        rows, y = [], 120.0
        for name, gap in zip(names, gaps, strict=True):
            rows += [
                line(x, y, f"{name * 4} sets what the printer does with {name}", width=205),
                line(x + 20, y + 12, "Syntax:", width=30),
                line(x + 20, y + 24, f"{name * 4}(number)", width=60),
            ]
            y += 36 + gap
        return rows

    left, right = entries(60, "abcdef", (10, 22, 10, 10, 34, 10)), entries(310, "stuvwx", (28, 10, 40, 10, 10, 10))
    read = " ".join(block.text for block in group([*left, *right]))
    assert read == " ".join(piece.text for piece in [*left, *right])


def test_two_columns_of_a_list_are_read_row_by_row(line: LineMaker) -> None:
    rows = [
        (line(60, 120 + 14 * i, f"key {i}", width=60), line(310, 120 + 14 * i, f"what key {i} does to it", width=200))
        for i in range(14)
    ]
    read = " ".join(block.text for block in group([piece for row in rows for piece in row]))
    assert read.startswith("key 0 what key 0 does to it key 1 what key 1 does to it")


def test_a_paragraph_round_a_figure_is_one_paragraph(line: LineMaker) -> None:
    beside = ["This tool can prove useful particularly when", "your project folder gets polluted by the many"]
    beside += ["files that a compiler leaves behind, and you", "want to get rid of all of them at once, safely:"]
    narrow = [line(72, 120 + 12 * i, text, width=210) for i, text in enumerate(beside)]
    wide = [line(72, 168 + 12 * i, text, width=440) for i, text in enumerate(BODY)]
    figure = LayoutRegion(BlockLabel.PICTURE, box(300, 118, 512, 164), 0.9)
    blocks = [block for block in group([*narrow, *wide], [figure]) if block.label is BlockLabel.TEXT]
    assert [block.text for block in blocks] == [" ".join([*beside, *BODY])]


def test_short_lines_that_end_where_they_like_stay_apart(line: LineMaker) -> None:
    words = ["Open the lid", "Take the old battery out", "Clean both contacts", "Put the new battery in"]
    lines = [line(72, 120 + 12 * i, text, width=5 * len(text)) for i, text in enumerate(words)]
    blocks = group([*lines, *body(line, 200)])
    assert [block.text for block in blocks][:4] == words


def test_text_that_the_layout_detector_takes_for_a_table_stays_text(line: LineMaker) -> None:
    region = LayoutRegion(BlockLabel.TABLE, box(60, 110, 520, 200), 0.6)
    lines = [*body(line, 120), line(72, 174, "•", width=5), line(90, 174, "the speed of the port, in baud", width=200)]
    assert shape(group(lines, [region])) == [
        ("text", " ".join(BODY)),
        ("list_item", "• the speed of the port, in baud"),
    ]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Figure 3: The wiring of the supply", "caption"),
        ("Table 2.1. Baud rates", "caption"),
        ("Abbildung 4: Der Aufbau", "caption"),
        ("図 5 配線", "caption"),
        ("Figure 3 shows how the supply is wired to the port of the", "text"),
    ],
)
def test_captions(line: LineMaker, text: str, label: str) -> None:
    blocks = group([*body(line, 120), line(72, 200, text), *body(line, 240)])
    assert (label, text) in shape(blocks)


def test_caption_without_a_mark_beside_a_picture(line: LineMaker) -> None:
    picture = LayoutRegion(BlockLabel.PICTURE, box(72, 200, 400, 380), 0.9)
    lines = [*body(line, 120), line(180, 280, "UPS"), line(72, 388, "Figure 3 The wiring"), *body(line, 430)]
    assert shape(group(lines, [picture])) == [
        ("text", " ".join(BODY)),
        ("picture", "UPS"),
        ("caption", "Figure 3 The wiring"),
        ("text", " ".join(BODY)),
    ]


def test_running_header_and_footer(line: LineMaker) -> None:
    lines = [
        line(72, 40, "UPS User Manual", size=9),
        line(480, 40, "17", size=9),
        *body(line, 100),
        line(290, 800, "Release 2.8", size=9),
    ]
    assert shape(group(lines)) == [
        ("page_header", "UPS User Manual 17"),
        ("text", " ".join(BODY)),
        ("page_footer", "Release 2.8"),
    ]


def test_text_that_reaches_the_foot_of_the_page_is_no_footer(line: LineMaker) -> None:
    assert [block.label for block in group(body(line, 760))] == [BlockLabel.TEXT]


def test_large_first_line_is_no_header(line: LineMaker) -> None:
    blocks = group([line(72, 60, "4 Maintenance", size=20), *body(line, 110)])
    assert shape(blocks)[0] == ("section_header", "4 Maintenance")


def test_footnotes_below_a_short_rule(line: LineMaker) -> None:
    ruling = Ruling((), (box(72, 690, 170, 691),))
    notes = [line(72, 696, "1 See the list of drivers.", size=8), line(72, 708, "2 Not on Windows.", size=8)]
    blocks = group([*body(line, 100), *body(line, 620), *notes], ruling=ruling)
    assert shape(blocks)[2:] == [("footnote", "1 See the list of drivers."), ("footnote", "2 Not on Windows.")]


def test_contents_entries(line: LineMaker) -> None:
    lines = [
        line(72, 90, "Contents", size=18),
        line(72, 130, "1 Introduction . . . . . . . . . . . . . . . . . . 1", width=440),
        line(84, 142, "1.1 Who it is for", width=90),
        line(500, 142, "iv", width=12),
        line(84, 154, "1.2 Conventions ........................ 3", width=428),
        line(72, 166, "2 Installing………5", width=440),
        line(72, 178, "A Cables . . . . . 112", width=440),
    ]
    assert shape(group(lines)) == [
        ("section_header", "Contents"),
        ("toc_entry", "1 Introduction ... 1"),
        ("toc_entry", "1.1 Who it is for ... iv"),
        ("toc_entry", "1.2 Conventions ... 3"),
        ("toc_entry", "2 Installing ... 5"),
        ("toc_entry", "A Cables ... 112"),
    ]


def test_text_beside_a_full_page_of_numbers_is_not_contents(line: LineMaker) -> None:
    blocks = group(body(line, 120, lines=["it was made in 1998", "and again in 2001", "then in 2004", "and 2010"]))
    assert all(block.label is not BlockLabel.TOC_ENTRY for block in blocks)


WORDS = ["Setup", "the", "1.2", "•", "port", "Figure 3:", "$ ls -l", "17", "12 . . . . 4", "第三章", "}", "A", "x."]


@st.composite
def pages(draw: st.DrawFn) -> tuple[list[TextLine], list[LayoutRegion], Ruling]:
    lines = []
    for index in range(draw(st.integers(0, 30))):
        x, y = draw(st.integers(0, 560)), draw(st.integers(0, 830))
        size = draw(st.sampled_from([6.0, 10.0, 10.0, 18.0]))
        lines.append(
            TextLine(
                bbox_norm=box(x, y, min(595, x + draw(st.integers(4, 500))), min(842, y + size)),
                text=f"{draw(st.sampled_from(WORDS))} w{index}",
                confidence=draw(st.sampled_from([None, 0.5, 1.0])),
                font_height_norm=draw(st.sampled_from([None, size])),
                is_bold=draw(st.sampled_from([None, True, False])),
                is_monospace=draw(st.sampled_from([None, True, False])),
            )
        )
    regions = [
        LayoutRegion(draw(st.sampled_from(list(BlockLabel))), box(x, y, x + 200, y + 150), 0.8)
        for x, y in draw(st.lists(st.tuples(st.integers(0, 390), st.integers(0, 690)), max_size=4))
    ]
    return lines, regions, Ruling()


@given(pages())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_line_ends_in_exactly_one_block(page: tuple[list[TextLine], list[LayoutRegion], Ruling]) -> None:
    lines, regions, ruling = page
    blocks = group(lines, regions, ruling)
    wanted = collections.Counter(word for line in lines for word in line.text.split())
    found = collections.Counter(word for block in blocks for line in block.lines for word in line.text.split())
    assert found == wanted


@given(pages())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_word_is_lost_from_the_texts(page: tuple[list[TextLine], list[LayoutRegion], Ruling]) -> None:
    lines, regions, ruling = page
    words = " ".join(block.text.replace("<", " <").replace(">", "> ") for block in group(lines, regions, ruling))
    assert all(f"w{index}" in words for index in range(len(lines)))
