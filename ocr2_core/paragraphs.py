"""Cuts one column of printed lines into headings, paragraphs, list items and code."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ocr2_core import line_labels
from ocr2_core.blocks import BlockLabel
from ocr2_core.code_lines import find_code
from ocr2_core.page_line import PageLine

_HEADING_SCORE = 2.5
_LIST_HEADING_SCORE = 3.0  # a numbered line may be a list item: ask for more
_WIDE_GAP = 1.3  # of the usual line distance
_ALIKE_EM, _LEAST_ALIKE = 0.6, 3  # lines set to a common right edge, in type sizes; so many of them


@dataclass(slots=True)
class Draft:
    """A block in the making: printed lines from the top down, each with the pieces it was joined from."""

    label: BlockLabel
    lines: list[PageLine] = field(default_factory=list)
    pieces: list[list[PageLine]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PageStyle:
    """What the page's text usually looks like; distances in points."""

    body_size: float
    line_distance: float
    is_typewritten: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One printed line of a column; `region` is the detector's label there, `frame` the printed box around it."""

    line: PageLine
    pieces: list[PageLine]
    region: BlockLabel | None = None
    frame: int | None = None


def page_style(lines: Sequence[PageLine], body_size: float) -> PageStyle:
    """The usual distance between neighbouring lines of body text, and whether all is set in typewriter face."""
    ordered = sorted((line for line in lines if abs(line.size / body_size - 1) < 0.15), key=lambda line: line.middle)
    distances = [
        below.middle - above.middle
        for above, below in pairwise(ordered)
        if 0.6 * body_size < below.middle - above.middle < 2.2 * body_size
    ]
    # single-line paragraphs would make the space between them look usual
    distance = min(statistics.median_low(distances), 1.6 * body_size) if distances else 1.25 * body_size
    letters = sum(len(line.text) for line in lines)
    fixed = sum(len(line.text) for line in lines if line.line.is_monospace)
    marks = sum(line_labels.code_mark_count(line.text) for line in lines)
    return PageStyle(body_size, distance, fixed > 0.7 * letters and marks < 0.5 * len(lines))


def cut_column(rows: Sequence[Row], style: PageStyle) -> list[Draft]:
    """Blocks of one column in order. Every row ends in exactly one of them."""
    if not rows:
        return []
    left, right = min(row.line.x0 for row in rows), max(row.line.x1 for row in rows)
    code = find_code([row.line for row in rows], style.line_distance, is_typewritten=style.is_typewritten)
    drafts: list[Draft] = []
    for index, row in enumerate(rows):
        above = rows[index - 1] if index else None
        below = rows[index + 1] if index + 1 < len(rows) else None
        label = BlockLabel.CODE if code[index] else _label(row, above, below, style, left, right)
        if drafts and label is BlockLabel.TEXT and _is_heading_rest(drafts[-1], row, style, right):
            label = BlockLabel.SECTION_HEADER
        edge = _edge(rows, index - 1, right) if index else right
        if above is None or not drafts or not _belongs(drafts[-1], above, row, label, style, edge):
            drafts.append(Draft(label))
        drafts[-1].lines.append(row.line)
        drafts[-1].pieces.append(row.pieces)
    for draft in drafts:
        if draft.label is BlockLabel.SECTION_HEADER and _is_paragraph(draft):
            draft.label = BlockLabel.TEXT
    return drafts


def _edge(rows: Sequence[Row], index: int, right: float) -> float:
    """Where the line at `index` could have ended: the column's right edge, or nearer where the text runs round a figure
    and at least three neighbouring lines end alike."""
    line = rows[index].line
    first = last = index
    while first > 0 and abs(rows[first - 1].line.x1 - line.x1) < _ALIKE_EM * line.size:
        first -= 1
    while last + 1 < len(rows) and abs(rows[last + 1].line.x1 - line.x1) < _ALIKE_EM * line.size:
        last += 1
    if last - first + 1 < _LEAST_ALIKE:
        return right
    return max(row.line.x1 for row in rows[first : last + 1])


def _is_paragraph(draft: Draft) -> bool:
    """Lines set larger than the rest of the page that are yet running text."""
    letters = sum(len(line.text) for line in draft.lines)
    return len(draft.lines) > 3 or (letters > 160 and draft.lines[-1].text[-1:] in ".:;")


def _label(row: Row, above: Row | None, below: Row | None, style: PageStyle, left: float, right: float) -> BlockLabel:
    marker = line_labels.list_marker(row.line.text)
    needed = _LIST_HEADING_SCORE if marker else _HEADING_SCORE
    if heading_score(row, above, below, style, left, right) >= needed:
        return BlockLabel.SECTION_HEADER
    return BlockLabel.LIST_ITEM if marker else BlockLabel.TEXT


def heading_score(row: Row, above: Row | None, below: Row | None, style: PageStyle, left: float, right: float) -> float:
    """Evidence that a line is a heading, from its type, numbering, surroundings and the detector; 2.5 is enough."""
    line = row.line
    text = line.text
    if sum(character.isalpha() for character in text) < 2 or len(text) > 200:
        return 0.0
    size = line.size / style.body_size
    gap_above = float("inf") if above is None else (line.middle - above.line.middle) / style.line_distance
    gap_below = float("inf") if below is None else (below.line.middle - line.middle) / style.line_distance
    taller = max(1.0, size)
    score = 2.0 if size >= 1.16 else 1.0 if size >= 1.07 else -1.0 if size < 0.9 else 0.0
    score += 2.0 if row.region is BlockLabel.SECTION_HEADER else 0.0
    score += 1.5 if line.line.is_bold else 0.0
    if line_labels.is_numbered_heading(text):
        score += 1.5
    elif line_labels.is_single_numbered(text):
        score += 0.7
    score += 1.0 if gap_above >= _WIDE_GAP * taller else -1.0 if gap_above < 1.12 * taller else 0.0
    score += 0.5 if gap_below >= 1.12 else -0.5
    if text[-1] in ",;" or (text[-1] == "." and not text[:-1].replace(".", "").strip().isdigit()):
        score -= 1.5
    elif text[-1] == ":":
        score -= 0.7
    if text[0].islower():
        score -= 1.5
    if line.width > 0.96 * (right - left) and size < 1.1:
        score -= 1.0
    if len(text) > 60 and size < 1.07 and not line.line.is_bold and not line_labels.is_numbered_heading(text):
        score -= 1.0
    if line_labels.code_mark_count(text) >= 2 and size < 1.1:
        score -= 1.5
    if line.line.is_monospace and size < 1.1:
        score -= 1.0
    return score


def _belongs(draft: Draft, above: Row, row: Row, label: BlockLabel, style: PageStyle, right: float) -> bool:
    """Whether the line continues the block above it."""
    last, line = above.line, row.line
    if above.frame != row.frame:
        return False
    gap = (line.middle - last.middle) / style.line_distance
    if draft.label is BlockLabel.CODE or label is BlockLabel.CODE:
        return draft.label is label and gap < 2.6
    if label is BlockLabel.SECTION_HEADER or draft.label is BlockLabel.SECTION_HEADER:
        return draft.label is label and _continues_heading(draft, row, style, right)
    if label is BlockLabel.LIST_ITEM:
        return False
    larger = max(last.size, line.size) / style.body_size
    if gap > _WIDE_GAP * max(1.0, larger) or max(last.size, line.size) / min(last.size, line.size) > 1.2:
        return False
    if draft.label is BlockLabel.LIST_ITEM:
        first = draft.lines[0]
        return line.x0 > first.x0 + 0.5 * first.size or (gap < 1.12 and not _ended(draft, line, right))
    if last.line.is_bold and not line.line.is_bold and len(draft.lines) == 1 and _ended(draft, line, right):
        return False
    first_line_indent = line.x0 - min(other.x0 for other in draft.lines)
    if 0.8 * line.size < first_line_indent < 4 * line.size and len(draft.lines) > 1 and _aligned(draft.lines[1:]):
        return False
    return not _ended(draft, line, right)


def _aligned(lines: Sequence[PageLine]) -> bool:
    return max(line.x0 for line in lines) - min(line.x0 for line in lines) < 0.6 * lines[0].size


def _ended(draft: Draft, line: PageLine, right: float) -> bool:
    """The block's last line left room in which the next line's first word would have stood: a wanted end."""
    last = draft.lines[-1]
    edge = max(right if len(draft.lines) == 1 else 0.0, *(other.x1 for other in draft.lines))
    first_word = line.text.split(" ", 1)[0]
    needed = (len(first_word) + 1) * line.character_width + 1.5 * line.size
    finished = last.text[-1:] in ".:!?。：！？;"
    return edge - last.x1 > needed * (1.0 if finished else 3.0)


def _is_heading_rest(draft: Draft, row: Row, style: PageStyle, right: float) -> bool:
    """A second heading line that would not pass for a heading alone, for it begins in lower case or stands close."""
    marked = row.line.size > 1.1 * style.body_size or row.line.line.is_bold is True
    return draft.label is BlockLabel.SECTION_HEADER and marked and _continues_heading(draft, row, style, right)


def _continues_heading(draft: Draft, row: Row, style: PageStyle, right: float) -> bool:
    last, line = draft.lines[-1], row.line
    if line_labels.is_numbered_heading(line.text) or line_labels.is_chapter_line(last.text):
        return False
    if max(last.size, line.size) / min(last.size, line.size) > 1.1 or last.line.is_bold is not line.line.is_bold:
        return False
    if line.middle - last.middle > 1.75 * max(last.size, line.size):
        return False
    if last.text.endswith("-"):
        return True
    centred = abs((last.x0 + last.x1) - (line.x0 + line.x1)) < 2 * line.size and abs(last.x0 - line.x0) > line.size
    return centred or line.x0 > last.x0 + line.size or last.x1 > 0.6 * right or last.size > 1.5 * style.body_size


def joined_text(lines: Sequence[str]) -> str:
    """Lines as running text: single spaces, hyphens at line ends undone, no spaces between ideographs."""
    text = ""
    for line in lines:
        if not text or not line:
            text += line
        elif _ends_in_hyphen(text) and line[0].isalnum():
            text = (text[:-1] if _is_soft_hyphen(text, line) else text) + line
        elif _is_wide(text[-1]) and _is_wide(line[0]):
            text += line
        else:
            text += " " + line
    return " ".join(text.split())


def _ends_in_hyphen(text: str) -> bool:
    return len(text) >= 2 and text[-1] in "-\u00ad\u2010" and text[-2].isalnum()


def _is_soft_hyphen(text: str, following: str) -> bool:
    """Whether the hyphen came with the line break: between two parts of one case, after a word with no other hyphen."""
    before, after = text[:-1].rsplit(" ", 1)[-1], following.split(" ", 1)[0].rstrip(".,;:!?)")
    if not before.isalpha() or len(before) < 2:
        return False
    return (before[-1].islower() and after[0].islower()) or (before.isupper() and after.isupper() and after.isalpha())


def _is_wide(character: str) -> bool:
    return "\u3000" <= character <= "\u9fff" or "\uff00" <= character <= "\uff60" or "\uf900" <= character <= "\ufaff"
