"""Printed lines put together from a PDF's pieces of text, without joining what stands in two columns."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

# in units of the type size
_SPLIT_GAP = 1.8
_JOIN_GAP = 0.9
_MARKER_GAP = 4.0
_BASELINE_TOLERANCE = 0.25
# what stands alone before a line by design: 1., 2.3.1, (a), IV., bullets
_MARKER = re.compile(
    r"^(\(?([0-9]{1,3}(\.[0-9]{1,3}){0,5}|[A-Za-z]|[IVXLCivxlc]{1,6})[.):]?|[•▪➢✓·◦○●■□–—*-]|§+\s?[0-9.]+)$"
)

_Box = tuple[float, float, float, float]


@dataclass(slots=True)
class LinePiece:
    """A run of characters on one baseline; boxes in points of the page as displayed."""

    is_upright: bool = True
    text: str = ""
    bbox: _Box = (0.0, 0.0, 0.0, 0.0)
    baseline: float = 0.0
    _sizes: Counter[float] = field(default_factory=Counter)
    _bold: int = 0
    _mono: int = 0

    def add(self, text: str, bbox: _Box, baseline: float, size: float, is_bold: bool, is_mono: bool) -> None:
        if not self.text:
            if text.isspace():
                return
            self.bbox, self.baseline = bbox, baseline
        self.text += text
        if text.isspace():
            return
        x0, y0, x1, y1 = self.bbox
        self.bbox = min(x0, bbox[0]), min(y0, bbox[1]), max(x1, bbox[2]), max(y1, bbox[3])
        self._sizes[round(size, 2)] += 1
        self._bold += is_bold
        self._mono += is_mono

    def is_gap_before(self, bbox: _Box, text: str, size: float) -> bool:
        """Whether a wide gap or a run of spaces parts this character from the piece: another column, another cell."""
        if not self.text or text.isspace() or not self.is_upright or self.is_monospace:
            return False
        return bbox[0] - self.bbox[2] > _SPLIT_GAP * size

    @property
    def font_size(self) -> float:
        return self._sizes.most_common(1)[0][0] if self._sizes else 0.0

    @property
    def is_bold(self) -> bool:
        return self._bold * 2 > self._sizes.total()

    @property
    def is_monospace(self) -> bool:
        return self._mono * 2 > self._sizes.total()

    def joined_with(self, other: LinePiece) -> LinePiece:
        spacer = "" if self.text.endswith(" ") or other.text.startswith(" ") else " "
        return LinePiece(
            self.is_upright,
            self.text + spacer + other.text,
            (
                min(self.bbox[0], other.bbox[0]),
                min(self.bbox[1], other.bbox[1]),
                max(self.bbox[2], other.bbox[2]),
                max(self.bbox[3], other.bbox[3]),
            ),
            self.baseline,
            self._sizes + other._sizes,
            self._bold + other._bold,
            self._mono + other._mono,
        )


def join_pieces(pieces: list[LinePiece]) -> list[LinePiece]:
    """Join pieces that belong to one printed line; the order of first pieces is kept.

    Neighbours on one baseline join when the gap is about a space wide; a number or bullet also joins the text a few
    ems behind it.
    """
    rows: dict[int, list[int]] = {}
    for index, piece in enumerate(pieces):
        if piece.is_upright:
            rows.setdefault(round(piece.baseline), []).append(index)
    follower: dict[int, int] = {}
    for index, piece in enumerate(pieces):
        if not piece.is_upright:
            continue
        near = [j for row in (-1, 0, 1) for j in rows.get(round(piece.baseline) + row, ()) if j != index]
        behind = [j for j in near if pieces[j].bbox[0] >= piece.bbox[2] - 0.3 * piece.font_size]
        if not behind:
            continue
        nearest = min(behind, key=lambda j: pieces[j].bbox[0])
        if nearest not in follower.values() and _belongs(piece, pieces[nearest]):
            follower[index] = nearest
    return _follow(pieces, follower)


def _belongs(left: LinePiece, right: LinePiece) -> bool:
    size = max(left.font_size, right.font_size)
    if abs(left.baseline - right.baseline) > _BASELINE_TOLERANCE * size:
        return False
    gap = right.bbox[0] - left.bbox[2]
    reach = _MARKER_GAP if _MARKER.match(left.text.strip()) and not _MARKER.match(right.text.strip()) else _JOIN_GAP
    return gap <= reach * size


def _follow(pieces: list[LinePiece], follower: dict[int, int]) -> list[LinePiece]:
    joined: list[LinePiece] = []
    continuations = set(follower.values())
    for index, piece in enumerate(pieces):
        if index in continuations:
            continue
        line, at = piece, index
        while at in follower:
            at = follower[at]
            line = line.joined_with(pieces[at])
        joined.append(line)
    return joined
