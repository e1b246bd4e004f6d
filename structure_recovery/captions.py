"""Tie each caption to the table, picture or code block it stands at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ocr2_core.blocks import BlockLabel
from structure_recovery.candidates import CAPTION
from structure_recovery.joining import Element

_CAPTIONED = (BlockLabel.TABLE, BlockLabel.PICTURE)
# A caption stands within this distance (thousandths of the page height) of what it names.
MAX_DISTANCE = 60.0


def tie_captions(elements: Sequence[Element]) -> list[Element]:
    """The elements without the captions that found their table or picture; those moved to its `captions`.

    Taken for captions: blocks the engine labels so, and short text that begins like one ("Figure 3:", "表 2"). The
    nearest table or picture on the same page wins; a word like "Table" asks for a table, "Figure" for a picture.
    """
    taken: set[Element] = set()
    on_page: dict[int, list[Element]] = defaultdict(list)
    for element in elements:
        if element.label in _CAPTIONED:
            for page_index in dict.fromkeys(piece.page_index for piece in element.pieces):
                on_page[page_index].append(element)
    for element in elements:
        if element.level is not None or not _is_caption(element):
            continue
        target = _nearest(element, on_page[element.page_index])
        if target is not None:
            element.label = BlockLabel.CAPTION
            target.captions.append(element)
            taken.add(element)
    return [element for element in elements if element not in taken]


def _is_caption(element: Element) -> bool:
    if len(element.pieces) > 1:
        return False
    if element.label is BlockLabel.CAPTION:
        return True
    return element.label is BlockLabel.TEXT and len(element.text) < 300 and CAPTION.match(element.text) is not None


def _nearest(caption: Element, elements: Sequence[Element]) -> Element | None:
    piece = caption.pieces[0]
    best: tuple[float, Element] | None = None
    for element in elements:
        for part in element.pieces:
            if part.page_index != piece.page_index:
                continue
            overlap = min(part.bbox_norm[2], piece.bbox_norm[2]) - max(part.bbox_norm[0], piece.bbox_norm[0])
            if overlap <= 0:
                continue
            distance = max(piece.bbox_norm[1] - part.bbox_norm[3], part.bbox_norm[1] - piece.bbox_norm[3], 0.0)
            if not _kinds_agree(caption.text, element.label):
                distance += MAX_DISTANCE / 2
            if distance <= MAX_DISTANCE and (best is None or distance < best[0]):
                best = (distance, element)
    return best[1] if best else None


def _kinds_agree(text: str, label: BlockLabel) -> bool:
    word = text[:3].casefold()
    if word.startswith(("tab", "表", "cua", "таб")):
        return label is BlockLabel.TABLE
    if word.startswith(("fig", "abb", "図", "图", "圖", "рис")):
        return label is BlockLabel.PICTURE
    return True
