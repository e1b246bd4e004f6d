from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ocr2_core.missed_ink import find_missed_ink
from ocr2_core.rapidocr_engine import RapidOcrEngine

PT = 200 / 72  # pixels a point


def px(x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
    return x0 * PT, y0 * PT, x1 * PT, y1 * PT


def test_lone_numbers_and_bullets_outside_the_boxes_are_found(page_maker: Callable[[], object]) -> None:
    page = page_maker()
    page.page.draw_circle((82, 116.5), 1.8, color=(0, 0, 0), fill=(0, 0, 0))
    page.text(94, 120, "an item of the list")
    page.text(80, 160, "Chapter 1 . . . . . . . . . . .").text(500, 160, "17")
    boxes = [px(93, 110, 175, 124), px(79, 150, 215, 164)]
    missed = find_missed_ink(page.render().image, boxes, 10 * PT)
    assert len(missed.bullets) == 1
    assert missed.bullets[0] == pytest.approx(px(80, 114.5, 84, 118.5), abs=4)
    assert len(missed.runs) == 1
    assert missed.runs[0] == pytest.approx(px(500, 153, 510, 160.5), abs=4)


def test_leader_dots_are_no_bullets_and_no_text(page_maker: Callable[[], object]) -> None:
    page = page_maker().text(80, 160, "Chapter 1 . . . . . . . . . . . . . . . . . . . 1728 pages or more")
    missed = find_missed_ink(page.render().image, [px(79, 150, 120, 164), px(214, 150, 300, 164)], 10 * PT)
    assert missed.bullets == []
    assert missed.runs == []


def test_a_picture_is_not_read_letter_by_letter() -> None:
    image = np.full((1000, 1000), 255, np.uint8)
    for x in range(100, 900, 40):
        for y in range(100, 900, 60):
            image[y : y + 22, x : x + 12] = 0
    assert find_missed_ink(image, [], 28.0).runs == []


def test_every_page_number_of_a_contents_page_is_read(engine: RapidOcrEngine, page_maker: Callable[[], object]) -> None:
    titles = [
        "Introduction",
        "Overview",
        "Description",
        "Installing",
        "Upgrading",
        "Drivers",
        "Network server",
        "Clients",
    ]
    page = page_maker().text(60, 80, "Contents", size=16, font="hebo")
    for index, title in enumerate(titles):
        page.text(60, 120 + 18 * index, f"{index + 1}  {title}").text(540, 120 + 18 * index, str(index // 2 + 1))
    (result,) = engine.read_pages([page.render()])
    assert [block.text for block in result.page.blocks] == ["Contents"] + [
        f"{index + 1} {title} ... {index // 2 + 1}" for index, title in enumerate(titles)
    ]
