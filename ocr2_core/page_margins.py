"""Running headers, footers, page numbers and footnotes: told by place, distance from the body, and the detector."""

from __future__ import annotations

from collections.abc import Sequence

from ocr2_core import line_labels
from ocr2_core.blocks import BlockLabel
from ocr2_core.page_line import Box, PageLine, rows_of

_MARGIN_SHARE = 0.1  # of the page height, at the top and at the bottom
_NUMBER_MARGIN_SHARE = 0.14
_MOST_ROWS = 2


def find_margin_rows(
    lines: Sequence[PageLine],
    height_pt: float,
    body_size: float,
    line_distance: float,
    regions: Sequence[tuple[BlockLabel, Box]],
    rules: Sequence[Box],
) -> dict[BlockLabel, list[list[PageLine]]]:
    """Rows of PAGE_HEADER and of PAGE_FOOTER, each from the top down."""
    rows = rows_of(lines)
    headers = _outer_rows(rows, BlockLabel.PAGE_HEADER, height_pt, body_size, line_distance, regions, rules)
    taken = {id(row) for row in headers}
    rest = [row for row in rows if id(row) not in taken]
    footers = _outer_rows(rest[::-1], BlockLabel.PAGE_FOOTER, height_pt, body_size, line_distance, regions, rules)
    return {BlockLabel.PAGE_HEADER: headers, BlockLabel.PAGE_FOOTER: footers[::-1]}


def _outer_rows(
    rows: list[list[PageLine]],
    label: BlockLabel,
    height_pt: float,
    body_size: float,
    line_distance: float,
    regions: Sequence[tuple[BlockLabel, Box]],
    rules: Sequence[Box],
) -> list[list[PageLine]]:
    """Walk inwards from the edge while rows look like furniture, at most two; the walk ends at a wide gap or a rule."""
    found: list[list[PageLine]] = []
    for index, row in enumerate(rows[:_MOST_ROWS]):
        middle = row[0].middle
        depth = middle if label is BlockLabel.PAGE_HEADER else height_pt - middle
        text = " ".join(line.text for line in row)
        bare_number = line_labels.is_page_number(text)
        numbered = bare_number or line_labels.is_page_number(row[0].text) or line_labels.is_page_number(row[-1].text)
        limit = (_NUMBER_MARGIN_SHARE if numbered else _MARGIN_SHARE) * height_pt
        detected = any(
            region is label and box[1] - 2 <= middle <= box[3] + 2 and box[0] < row[-1].x1 and box[2] > row[0].x0
            for region, box in regions
        )
        if depth > (limit if not detected else 0.16 * height_pt):
            break
        following = rows[index + 1] if index + 1 < len(rows) else None
        gap = abs(following[0].middle - middle) if following else float("inf")
        low, high = sorted((middle, following[0].middle)) if following else (0.0, 0.0)
        ruled = any(
            low < (rule[1] + rule[3]) / 2 < high and rule[2] - rule[0] > 0.3 * (row[-1].x1 - row[0].x0)
            for rule in rules
        )
        large = max(line.size for line in row) > 1.3 * body_size
        apart = gap > 1.6 * line_distance
        if large and not numbered and not detected:
            break
        set_apart = ruled or (apart and len(text) < 120 and not text.endswith((".", ",")))
        if bare_number or set_apart or (detected and gap > 1.25 * line_distance):
            found.append(row)
            if not bare_number and (ruled or apart):
                break
        else:
            break
    return found


def find_footnotes(
    lines: Sequence[PageLine], body_size: float, height_pt: float, rules: Sequence[Box]
) -> list[PageLine]:
    """The lines at the foot of the text that are set smaller and begin with a note mark or stand below a short rule."""
    rows = rows_of(lines)
    first = None
    for index in range(len(rows) - 1, -1, -1):
        row = rows[index]
        if max(line.size for line in row) > 0.93 * body_size or row[0].middle < 0.45 * height_pt:
            break
        above = rows[index - 1][0] if index else None
        below = rows[index + 1][0] if index + 1 < len(rows) else None
        if below is not None and below.middle - row[0].middle > 2 * max(line.size for line in row):
            break
        ruled = any(
            (above.middle if above else 0.0) < (rule[1] + rule[3]) / 2 < row[0].middle
            and row[0].middle - rule[1] < 3 * body_size
            and rule[2] - rule[0] < 0.5 * max(1.0, max(line.x1 for line in lines) - min(line.x0 for line in lines))
            for rule in rules
        )
        if ruled or line_labels.is_footnote_start(row[0].text):
            first = index
    return [line for row in rows[first:] for line in row] if first is not None else []
