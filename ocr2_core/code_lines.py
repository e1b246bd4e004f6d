"""Finds runs of program code and commands among the printed lines of a column, and writes them out verbatim."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ocr2_core import line_labels
from ocr2_core.page_line import PageLine

_WIDE_GAP = 1.45  # of the usual line distance: code is set tight
_LEAST_LETTERS = 12


def find_code(lines: Sequence[PageLine], line_distance: float, *, is_typewritten: bool = False) -> list[bool]:
    """For each line of a column from the top down, whether it belongs to code.

    Lines that are set tight in one size vote with their letters: typewriter face for code, book face against; lines
    whose face cannot be told follow their neighbours. Where the whole page is typewritten the face says nothing and
    only prompts count.
    """
    code = [False] * len(lines)
    start = 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or not _is_tight(lines[end - 1], lines[end], line_distance):
            for begin, stop in _code_runs(lines, start, end, is_typewritten):
                code[begin:stop] = [True] * (stop - begin)
            start = end
    return code


def _is_tight(above: PageLine, below: PageLine, line_distance: float) -> bool:
    # a line of few letters has a badly known size
    sure = min(_letter_count(above.text), _letter_count(below.text)) >= 8
    alike = max(above.size, below.size) / min(above.size, below.size) < (1.15 if sure else 1.5)
    return alike and below.middle - above.middle < _WIDE_GAP * line_distance


def _letter_count(text: str) -> int:
    return sum(map(str.isalnum, text))


def _votes(line: PageLine, is_typewritten: bool) -> float:
    letters = len(line.text)
    if line_labels.is_command(line.text) and line.line.is_monospace is not False:
        return float(letters + 10)
    if is_typewritten or line.line.is_monospace is None:
        return 0.0
    if line.line.is_monospace:
        return float(letters)
    # few words with marks are a badly measured line of code rather than prose against it
    marks = line_labels.code_mark_count(line.text)
    looks_like_code = marks >= 2 or (marks == 1 and len(line.text.split()) <= 4)
    return 0.0 if looks_like_code and not _is_sentence(line.text) else float(-letters)


def _is_sentence(text: str) -> bool:
    return text.endswith((".", ",")) and len(text.split()) >= 5


def _code_runs(lines: Sequence[PageLine], start: int, end: int, is_typewritten: bool) -> list[tuple[int, int]]:
    """The run of lines with the greatest sum of votes (Kadane), widened over undecided lines; then the rest."""
    votes = [_votes(line, is_typewritten) for line in lines[start:end]]
    best, best_range, running, begin = 0.0, (0, 0), 0.0, 0
    for index, vote in enumerate(votes):
        if running <= 0:
            running, begin = 0.0, index
        running += vote
        if running > best:
            best, best_range = running, (start + begin, start + index + 1)
    first, last = best_range
    if best < _LEAST_LETTERS:
        return []
    while first > start and votes[first - 1 - start] == 0 and not _ends_prose(lines, votes, start, first - 1):
        first -= 1
    while last < end and votes[last - start] == 0:
        last += 1
    for_code = sum(vote > 0 for vote in votes[first - start : last - start])
    found = [(first, last)] if for_code >= 2 or _speaks_for_itself(lines[first:last]) else []
    return _code_runs(lines, start, first, is_typewritten) + found + _code_runs(lines, last, end, is_typewritten)


def _ends_prose(lines: Sequence[PageLine], votes: Sequence[float], start: int, index: int) -> bool:
    """Whether an undecided line above code is the short last line of the paragraph above it."""
    if index == start or votes[index - 1 - start] >= 0:
        return False
    above, line, below = lines[index - 1], lines[index], lines[index + 1]
    return line.middle - above.middle <= below.middle - line.middle + 0.1 * line.size


def _speaks_for_itself(lines: Sequence[PageLine]) -> bool:
    """Whether a lone line is code by its text: a prompt, or marks of code and no sentence."""
    marks = sum(line_labels.code_mark_count(line.text) for line in lines)
    return any(line_labels.is_command(line.text) for line in lines) or (marks >= 2 and not _is_sentence(lines[-1].text))


def code_text(lines: Sequence[PageLine], pieces: Sequence[Sequence[PageLine]]) -> str:
    """Verbatim lines, their indents and inner gaps given back in spaces from where the pieces stand."""
    widths = [piece.character_width for row in pieces for piece in row if len(piece.text) >= 5]
    width = statistics.median(widths) if widths else 0.6 * lines[0].size
    left = min(line.x0 for line in lines)
    return "\n".join(_spaced(row, left, width) for row in pieces)


def _spaced(pieces: Sequence[PageLine], left: float, width: float) -> str:
    text = ""
    for piece in pieces:
        column = round((piece.x0 - left) / width)
        text += " " * max(column - len(text), 1 if text else 0) + piece.text
    return text
