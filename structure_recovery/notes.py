"""Notes and warnings: a word like `Warning` opens a block of its own, with the text it stands before."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ocr2_core.blocks import BlockLabel
from structure_recovery.joining import Element
from structure_recovery.vocabulary import ADMONITIONS, letters_of

_OPENING = re.compile(r"^\W{0,2}(?P<word>[^\W\d_]{1,15})\s?(?P<end>[:：!！.—–]|$)")
# A word that stands alone takes the text this close below or beside it (thousandths of the page height).
_MAX_GAP = 25.0


def mark_notes(elements: Sequence[Element]) -> int:
    """Set `note` (the printed word) of the elements that belong to a note; how many notes there are.

    A text that begins with such a word and a colon is one; a word that stands alone is one together with the text that
    follows it in reading order, right below it or beside it.
    """
    count = 0
    for index, element in enumerate(elements):
        if element.note or not _may_open(element):
            continue
        match = _OPENING.match(element.text)
        if match is None or letters_of(match["word"]) not in ADMONITIONS:
            continue
        is_alone = match.end() == len(element.text.rstrip())
        following = elements[index + 1] if index + 1 < len(elements) else None
        if is_alone and (following is None or not _stands_at(element, following)):
            continue
        if not is_alone and not match["end"]:
            continue
        word = match["word"].casefold()
        element.note = f"{word} {count + 1}"
        if is_alone and following is not None:
            following.note = element.note
        count += 1
    return count


def _may_open(element: Element) -> bool:
    return element.level is None and element.label is BlockLabel.TEXT


def _stands_at(word: Element, text: Element) -> bool:
    if text.level is not None or text.label is not BlockLabel.TEXT or text.page_index != word.page_index:
        return False
    upper, lower = word.pieces[-1].bbox_norm, text.pieces[0].bbox_norm
    return lower[1] - upper[3] < _MAX_GAP and lower[3] > upper[1]
