"""What the text points to: sections, figures, tables, pages and footnotes, where they are in the document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ocr2_core.blocks import BlockLabel
from structure_recovery.candidates import Candidate
from structure_recovery.furniture import PageLabel
from structure_recovery.joining import Element
from structure_recovery.vocabulary import (
    APPENDIX_WORDS,
    CHAPTER_WORDS,
    FIGURE_WORDS,
    PAGE_WORDS,
    PART_WORDS,
    SECTION_WORDS,
    SEE_WORDS,
    TABLE_WORDS,
)

_NUMBER = r"(?P<number>[A-Z]?\.?[0-9]{1,3}(?:[.\-–][0-9]{1,3}){0,5}|[A-Z](?=\b))"
_SECTION_NUMBER = r"(?P<number>[0-9]{1,3}(?:\.[0-9]{1,3}){0,5})"
_PAGE_NUMBER = r"(?P<number>[0-9]{1,4})"
_PATTERNS = (
    ("section", rf"(?:{SECTION_WORDS}|{CHAPTER_WORDS}|{APPENDIX_WORDS}|{PART_WORDS})\s{{0,2}}{_NUMBER}"),
    ("section", rf"第?\s?{_SECTION_NUMBER}\s?[章节節]"),
    # "see 3.2": a bare number counts where a word sends the reader there
    ("section", rf"(?:{SEE_WORDS})\s{{0,2}}(?:also\s)?(?=[0-9]+\.){_SECTION_NUMBER}"),
    ("figure", rf"(?:{FIGURE_WORDS})\s{{0,2}}{_NUMBER}"),
    ("table", rf"(?:{TABLE_WORDS})\s{{0,2}}{_NUMBER}"),
    ("page", rf"(?:{PAGE_WORDS})\s{{0,2}}{_PAGE_NUMBER}"),
    ("page", rf"第?\s?{_PAGE_NUMBER}\s?[頁页]"),
)
# Words end where a letter does not go on; Chinese and Japanese set no spaces, so theirs end anywhere.
_LETTER = r"[^\W\u3005-\u9fff]"
_REFERENCES = [
    (kind, re.compile(rf"(?<!{_LETTER})(?<!\.){pattern}(?!{_LETTER}|\.[0-9])", re.IGNORECASE))
    for kind, pattern in _PATTERNS
]
_CAPTION_NUMBER = re.compile(rf"^(?:(?P<figure>{FIGURE_WORDS})|(?P<table>{TABLE_WORDS}))\s*{_NUMBER}", re.IGNORECASE)
_FOOTNOTE_MARK = re.compile(r"^(?P<mark>\[?[0-9]{1,2}\]?|[*†‡§]{1,3}|[¹²³⁴⁵⁶⁷⁸⁹]+)\s?(?=\S)")
_SUPERSCRIPTS = str.maketrans("¹²³⁴⁵⁶⁷⁸⁹⁰", "1234567890")
_TARGET_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Reference:
    """One pointer: its kind (section, figure, table, page, footnote), its words and page, and what it points to."""

    kind: str
    page_number: int
    text: str
    target: str
    target_page_number: int


def find_references(
    elements: Sequence[Element], headings: Sequence[Candidate], page_labels: Mapping[int, PageLabel]
) -> tuple[list[Reference], int]:
    """All references of the body in reading order that lead somewhere, and how many do not.

    `elements` is the body with captions tied; pages are told by their printed labels. Headings refer to nothing.
    """
    targets = _targets(elements, headings)
    pages = {label.value: index for index, label in page_labels.items() if not label.is_roman}
    found: list[Reference] = []
    lost = 0
    for element in elements:
        if element.level is not None or element.label not in (
            BlockLabel.TEXT,
            BlockLabel.LIST_ITEM,
            BlockLabel.FOOTNOTE,
        ):
            continue
        for kind, number, text in _pointers(element.text):
            target = targets.get((kind, number))
            if kind == "page":
                index = pages.get(int(number))
                target = None if index is None else (f"page {number}", index)
            if target is None:
                lost += 1
                continue
            found.append(Reference(kind, element.page_index + 1, text, target[0], target[1] + 1))
    found += _footnotes(elements)
    return sorted(found, key=lambda each: each.page_number), lost


def _targets(elements: Sequence[Element], headings: Sequence[Candidate]) -> dict[tuple[str, str], tuple[str, int]]:
    """(kind, number) → (its words, page index); the first of a number wins."""
    targets: dict[tuple[str, str], tuple[str, int]] = {}
    for heading in headings:
        if heading.numbering is not None:
            number = _number(heading.numbering.printed)
            targets.setdefault(("section", number), (heading.text, heading.page_index))
    captions = [caption for element in elements for caption in element.captions]
    captions += [element for element in elements if element.label is BlockLabel.CAPTION]
    for caption in captions:
        if match := _CAPTION_NUMBER.match(caption.text):
            kind = "figure" if match["figure"] else "table"
            told = caption.text[:_TARGET_CHARACTERS]
            targets.setdefault((kind, _number(match["number"])), (told, caption.page_index))
    return targets


def _pointers(text: str) -> Iterator[tuple[str, str, str]]:
    """(kind, number, words) of every reference in a text."""
    taken: list[tuple[int, int]] = []
    for kind, pattern in _REFERENCES:
        for match in pattern.finditer(text):
            if any(start < match.end() and match.start() < end for start, end in taken):
                continue
            taken.append(match.span())
            yield kind, _number(match["number"]), match.group().strip()


def _number(printed: str) -> str:
    """`Chapter 3.`, `3` and `3.` are one number."""
    parts = re.findall(r"[0-9]+|(?<![A-Za-z])[A-Za-z](?![A-Za-z])", printed)
    return ".".join(part.upper().lstrip("0") or "0" for part in parts)


def _footnotes(elements: Sequence[Element]) -> Iterator[Reference]:
    """Each footnote with the word on its page that carries its mark."""
    for note in elements:
        if note.label is not BlockLabel.FOOTNOTE or not (match := _FOOTNOTE_MARK.match(note.text)):
            continue
        mark = match["mark"].translate(_SUPERSCRIPTS).strip("[]")
        carrier = re.compile(rf"(?P<word>[^\W\d_][\w-]*[.,;:)\"”’]?)(?:\[?{re.escape(mark)}\]?)(?!\w)")
        for element in elements:
            if element.page_index != note.page_index or element.label not in (BlockLabel.TEXT, BlockLabel.LIST_ITEM):
                continue
            if word := carrier.search(element.text.translate(_SUPERSCRIPTS)):
                told = note.text[:_TARGET_CHARACTERS]
                yield Reference("footnote", note.page_index + 1, word.group(), told, note.page_index + 1)
                break
