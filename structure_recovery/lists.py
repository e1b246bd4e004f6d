"""How deep list items lie in each other, by their markers and their indent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ocr2_core.blocks import BlockLabel
from ocr2_core.geometry import NORM_MAX
from structure_recovery.elements import Piece
from structure_recovery.joining import Element, split_marker

# Items whose left edges differ by less than this (in type sizes) are set alike.
_ALIGNED_EM = 0.9
_FIRST_OF_SERIES = frozenset({"1", "a", "A", "i", "I"})


@dataclass(slots=True)
class _Level:
    """One open level: its markers' form, and where its last item begins."""

    form: str
    left: float
    place: tuple[int, int]


def nest_lists(elements: Iterable[Element]) -> None:
    """Set `depth` (0 the outermost) of every list item; anything else between items ends the list.

    On one column of a page an indent opens a level and its end closes it. Items set alike, or on different pages, are
    told by the form of their markers: a form that is open closes what lies deeper, a new series (1, a, i, a bullet)
    opens a level, anything else goes on.
    """
    stack: list[_Level] = []
    for element in elements:
        if element.label is not BlockLabel.LIST_ITEM or element.level is not None:
            stack = []
            continue
        _place(stack, element)
        element.depth = len(stack) - 1


def _place(stack: list[_Level], element: Element) -> None:
    piece = element.pieces[0]
    marker, _ = split_marker(element.text)
    form = _form(marker)
    new = _Level(form, piece.bbox_norm[0], (piece.page_index, piece.column))
    if not stack:
        stack.append(new)
        return
    if stack[-1].place == new.place:
        tolerance = _ALIGNED_EM * _em_norm(piece)
        if new.left > stack[-1].left + tolerance:
            stack.append(new)
            return
        while len(stack) > 1 and new.left < stack[-1].left - tolerance:
            stack.pop()
    open_forms = [level.form for level in stack]
    if form and form in open_forms:
        del stack[len(open_forms) - open_forms[::-1].index(form) :]
    elif form and stack[-1].form and _begins_series(marker):
        stack.append(new)
        return
    stack[-1] = _Level(form or stack[-1].form, new.left, new.place)


def _form(marker: str) -> str:
    """The marker with its number put out: `(1)` and `(2)` have one form, `•` and `-` two."""
    inner = marker.strip("().．、")
    if inner.isdigit():
        return marker.replace(inner, "1")
    if re.fullmatch("[ivxIVX]{2,}|[iI]", inner):
        return marker.replace(inner, "i" if inner.islower() else "I")
    if len(inner) == 1 and inner.isalpha():
        return marker.replace(inner, "a" if inner.islower() else "A")
    return marker


def _begins_series(marker: str) -> bool:
    inner = marker.strip("().．、")
    return inner in _FIRST_OF_SERIES or not inner.isalnum()


def _em_norm(piece: Piece) -> float:
    """The type size in thousandths of the page's width."""
    return piece.size_pt / piece.width_pt * NORM_MAX
