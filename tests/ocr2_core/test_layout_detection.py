from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ocr2_core.blocks import BlockLabel
from ocr2_core.layout_detection import LayoutDetector
from ocr2_core.printed_lines import to_bgr

WORDS = "the driver reads its state every two seconds and tells all clients "


def test_finds_title_and_text(page_maker: Callable[[], object]) -> None:
    page = page_maker()
    page.text(72, 120, "2 Reading the state", size=20, font="hebo")
    page.lines(72, 160, [(WORDS * 2)[:90]] * 14)
    page.lines(72, 380, [(WORDS * 2)[:90]] * 14)
    regions = LayoutDetector(thread_count=1)(to_bgr(page.render().image))
    assert regions == sorted(regions, key=lambda region: -region.score)
    title = next(region for region in regions if region.label is BlockLabel.SECTION_HEADER)
    assert 105 < title.bbox_norm[1] < title.bbox_norm[3] < 160
    texts = [region for region in regions if region.label is BlockLabel.TEXT]
    assert any(150 < region.bbox_norm[1] < 220 for region in texts)


def test_blank_page_has_no_regions() -> None:
    assert LayoutDetector(thread_count=1)(np.full((1100, 850, 3), 255, np.uint8)) == []
