"""A printed line in points, as grouping works with it, and the joining of its pieces."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ocr2_core.blocks import TextLine
from ocr2_core.geometry import NORM_MAX, BBoxNorm, union

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class PageLine:
    """One printed line (or a piece of one): the shared TextLine, its box in points and its type size in points."""

    line: TextLine
    box: Box
    size: float

    @property
    def text(self) -> str:
        return self.line.text

    @property
    def x0(self) -> float:
        return self.box[0]

    @property
    def y0(self) -> float:
        return self.box[1]

    @property
    def x1(self) -> float:
        return self.box[2]

    @property
    def y1(self) -> float:
        return self.box[3]

    @property
    def width(self) -> float:
        return self.box[2] - self.box[0]

    @property
    def middle(self) -> float:
        return (self.box[1] + self.box[3]) / 2

    @property
    def character_width(self) -> float:
        return self.width / max(1, len(self.text))


@dataclass(frozen=True, slots=True)
class PageScale:
    """Turns boxes in 0..999 into points and back."""

    width_pt: float
    height_pt: float

    def to_points(self, bbox_norm: BBoxNorm) -> Box:
        x, y = self.width_pt / NORM_MAX, self.height_pt / NORM_MAX
        return bbox_norm[0] * x, bbox_norm[1] * y, bbox_norm[2] * x, bbox_norm[3] * y

    def line(self, line: TextLine) -> PageLine:
        box = self.to_points(line.bbox_norm)
        if line.font_height_norm is not None:
            size = line.font_height_norm * self.height_pt / NORM_MAX
        else:
            size = 0.75 * (box[3] - box[1])
        return PageLine(line, box, max(1.0, size))

    def joined(self, pieces: Sequence[PageLine], separator: str = " ") -> PageLine:
        """One printed line out of its pieces, which are ordered from left to right."""
        if len(pieces) == 1:
            return pieces[0]
        longest = max(pieces, key=lambda piece: len(piece.text))
        line = TextLine(
            bbox_norm=union([piece.line.bbox_norm for piece in pieces]),
            text=separator.join(piece.text for piece in pieces),
            confidence=mean_confidence(piece.line for piece in pieces),
            font_height_norm=longest.line.font_height_norm,
            is_bold=_shared(piece.line.is_bold for piece in pieces),
            is_monospace=longest.line.is_monospace,
        )
        return PageLine(line, self.to_points(line.bbox_norm), longest.size)


def mean_confidence(lines: Iterable[TextLine]) -> float | None:
    """Mean over the lines that have one, weighted by their length."""
    pairs = [(line.confidence, max(1, len(line.text))) for line in lines if line.confidence is not None]
    if not pairs:
        return None
    return min(1.0, sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs))


def _shared(values: Iterable[bool | None]) -> bool | None:
    known = [value for value in values if value is not None]
    return all(known) if known else None


def rows_of(lines: Iterable[PageLine]) -> list[list[PageLine]]:
    """Lines that stand side by side, from the top down, each row from left to right."""
    rows: list[list[PageLine]] = []
    for line in sorted(lines, key=lambda line: line.middle):
        if rows and _same_row(rows[-1], line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.x0) for row in rows]


def _same_row(row: list[PageLine], line: PageLine) -> bool:
    middle = statistics.fmean(other.middle for other in row)
    height = min(min(other.y1 - other.y0 for other in row), line.y1 - line.y0)
    if abs(middle - line.middle) > 0.45 * height:
        return False
    # pieces of one row do not lie over one another
    return all(min(other.x1, line.x1) - max(other.x0, line.x0) < 0.3 * min(other.width, line.width) for other in row)


def body_size(lines: Sequence[PageLine]) -> float:
    """The type size most of the text is set in (median weighted by length), 10 points for no text."""
    if not lines:
        return 10.0
    ordered = sorted(lines, key=lambda line: line.size)
    half = sum(len(line.text) for line in ordered) / 2
    running = 0
    for line in ordered:
        running += len(line.text)
        if running >= half:
            return line.size
    return ordered[-1].size


def overlap_share(inner: Box, outer: Box) -> float:
    """Share of `inner`'s area that lies in `outer`."""
    width = min(inner[2], outer[2]) - max(inner[0], outer[0])
    height = min(inner[3], outer[3]) - max(inner[1], outer[1])
    area = (inner[2] - inner[0]) * (inner[3] - inner[1])
    return width * height / area if width > 0 and height > 0 and area > 0 else 0.0


def holds_middle(outer: Box, line: PageLine) -> bool:
    return outer[0] <= (line.x0 + line.x1) / 2 <= outer[2] and outer[1] <= line.middle <= outer[3]
