"""Gives back what the recogniser drops between letters: spaces it ran over and underscores it counted short."""

from __future__ import annotations

import re
import statistics
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ocr2_core.line_evidence import is_ideograph
from ocr2_core.text_recognition import RecognisedLine

_LEAST_GAP = 0.17  # of the type size: narrower paper is between letters
_SHARE_OF_SPACE = 0.72  # of the line's usual word space
_UNDERSCORE_WIDTH = 0.53  # of the type size; book faces 0.5, typewriter faces 0.525 to 0.6
_NARROW_MARKS = frozenset("'\"`´’‘“”.,:;!|()[]{}/\\-–*°^_~")
_SECTION_NUMBER = re.compile(r"^\d{1,2}(?:\.\d{1,3}){1,4}(?=[\"“'«(]?[^\W\d_]{2})")
_HEXADECIMAL = re.compile(r"\bO(?=[xX][0-9A-Fa-f]+\b)")


def restore(
    line: RecognisedLine, crop_gray: NDArray[np.uint8], font_height_px: float | None, *, is_fixed_pitch: bool = False
) -> RecognisedLine:
    """The line with missing spaces and underscores put in where the ink shows them.

    A gap between two letters that is about as wide as the line's word spaces is a space. A line of CTC output has a
    place for every character, so the paper between two of them can be measured. Typewriter letters have such gaps
    anyway, so no space is put into lines of fixed pitch.
    """
    if font_height_px is None or len(line.text) != len(line.centres) or any(map(is_ideograph, line.text)):
        return line
    ink = _ink(crop_gray)
    if ink is None:
        return line
    text, centres, confidences = list(line.text), list(line.centres), list(line.character_confidences)
    for place in reversed([] if is_fixed_pitch else _missing_spaces(line, ink, font_height_px)):
        text.insert(place, " ")
        centres.insert(place, (centres[place - 1] + centres[place]) / 2)
        confidences.insert(place, min(confidences[place - 1], confidences[place]))
    for place, count in reversed(_short_underscores(text, centres, ink, font_height_px)):
        text[place:place] = "_" * count
        centres[place:place] = [centres[place]] * count
        confidences[place:place] = [confidences[place]] * count
    repaired = _HEXADECIMAL.sub("0", "".join(text))
    return RecognisedLine(repaired, line.confidence, tuple(centres), tuple(confidences))


def _ink(crop_gray: NDArray[np.uint8]) -> NDArray[np.bool_] | None:
    import cv2

    if crop_gray.size == 0 or int(crop_gray.max()) - int(crop_gray.min()) < 40:
        return None
    threshold, _ = cv2.threshold(crop_gray, 0, 1, cv2.THRESH_BINARY_INV | cv2.THRESH_OTSU)
    dark = crop_gray <= threshold
    return dark if dark.mean() < 0.5 else ~dark


def _missing_spaces(line: RecognisedLine, ink: NDArray[np.bool_], font_height_px: float) -> list[int]:
    height, width = ink.shape
    # specks and the neighbouring lines' tips at the edges are no letters
    inner = ink[round(0.1 * height) : round(0.9 * height)].sum(axis=0) > 0
    printed = [index for index, character in enumerate(line.text) if character != " "]
    gaps = _gaps(inner, np.asarray([line.centres[index] * width for index in printed]))
    pairs = list(zip(pairwise(printed), gaps, strict=True))
    spaces = [gap for (before, after), gap in pairs if after - before > 1]
    candidates = [(after, gap) for (before, after), gap in pairs if after - before == 1]
    if not candidates:
        return []
    head = _SECTION_NUMBER.match(line.text)
    if head and _is_set_off(line, inner, head.end(), font_height_px):
        return sorted({head.end(), *_wide_gaps(line.text, candidates, spaces, font_height_px)})
    return _wide_gaps(line.text, candidates, spaces, font_height_px)


def _is_set_off(line: RecognisedLine, inked: NDArray[np.bool_], index: int, font_height_px: float) -> bool:
    """Whether a section number is followed by a gap; the recogniser places its last digit as far as in the gap."""
    start = line.centres[index - 1] * len(inked) - 0.4 * font_height_px
    end = line.centres[index] * len(inked) + 0.1 * font_height_px
    return _gaps(inked, np.asarray([start, end]))[0] >= _LEAST_GAP * font_height_px


def _wide_gaps(text: str, candidates: list[tuple[int, int]], spaces: list[int], font_height_px: float) -> list[int]:
    usual = statistics.median(spaces) if len(spaces) >= 2 else 0.28 * font_height_px
    least = max(_LEAST_GAP * font_height_px, _SHARE_OF_SPACE * usual)
    letter_gap = statistics.median(gap for _, gap in candidates)
    wide = [index for index, gap in candidates if gap >= max(least, 2.5 * letter_gap + 1)]
    return [index for index in wide if _may_part(text, index) and not _is_letterspaced(text, index, wide)]


def _may_part(text: str, index: int) -> bool:
    before, after = text[index - 1], text[index]
    if before in _NARROW_MARKS or after in _NARROW_MARKS or (before.isdigit() and after.isdigit()):
        return False
    # typewriter words inside a line of book face have wide gaps beside narrow letters
    left, right = text[:index].rsplit(" ", 1)[-1], text[index:].split(" ", 1)[0]
    return not (len(left) == 1 and left.isalpha()) and not (len(right) == 1 and right.isalpha())


def _is_letterspaced(text: str, index: int, wide: list[int]) -> bool:
    """Whether the same word has another wide gap: then it is set in typewriter face or spaced out."""
    start = text.rfind(" ", 0, index)
    end = text.find(" ", index)
    return sum(start < other < (end if end >= 0 else len(text)) for other in wide) > 1


def _gaps(inked: NDArray[np.bool_], places: NDArray[np.float64]) -> list[int]:
    """For each two neighbouring places the widest run of columns without ink that has ink on both sides between them.

    Runs at the ends do not count: the recogniser's places are a few pixels off and may lie beside a narrow letter.
    """
    widest = np.zeros(max(0, len(places) - 1), int)
    columns = np.flatnonzero(inked)
    if len(columns) < 2 or not len(widest):
        return [int(width) for width in widest]
    bounds = np.round(places).astype(int)
    between = np.searchsorted(bounds, columns[:-1], side="right") - 1
    inside = (between >= 0) & (between < len(widest))
    inside[inside] = columns[1:][inside] <= bounds[between[inside] + 1]
    np.maximum.at(widest, between[inside], np.diff(columns)[inside] - 1)
    return [int(width) for width in widest]


def _short_underscores(
    text: list[str], centres: list[float], ink: NDArray[np.bool_], font_height_px: float
) -> list[tuple[int, int]]:
    """(place, how many more) for runs of underscores whose ink is too long for their number."""
    if "_" not in text:
        return []
    height, width = ink.shape
    found = []
    index = 0
    while index < len(text):
        if text[index] != "_":
            index += 1
            continue
        count = 1
        while index + count < len(text) and text[index + count] == "_":
            count += 1
        middle = (centres[index] + centres[index + count - 1]) / 2 * width
        length = _stroke_length(ink[round(0.6 * height) :], round(middle))
        missing = round(length / (_UNDERSCORE_WIDTH * font_height_px)) - count
        if 0 < missing <= 4:
            found.append((index, missing))
        index += count
    return found


def _stroke_length(ink: NDArray[np.bool_], x: int) -> int:
    """The longest horizontal stroke that runs through column x."""
    longest = 0
    for row in ink:
        if not 0 <= x < len(row) or not row[x]:
            continue
        right = np.flatnonzero(~row[x:])
        left = np.flatnonzero(~row[: x + 1][::-1])
        longest = max(longest, int(right[0] if len(right) else len(row) - x) + int(left[0] if len(left) else x + 1) - 1)
    return longest
