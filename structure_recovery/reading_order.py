"""Reading order of one page from geometry alone: bands split by blocks that span the columns, columns inside a band.

A recursive cut in the manner of XY-cut (Nagy and Seth, 1984) that looks for the gutter first: cutting at white rows
first would tear columns apart wherever their paragraph gaps happen to line up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ocr2_core.blocks import BlockLabel
from ocr2_core.geometry import NORM_MAX
from structure_recovery.elements import Piece, place_key, text_width_em

_BINS = 200
_MAX_DEPTH = 6
# A column of running text holds at least this much: narrower or emptier ones are labels and side notes.
_MIN_COLUMN_SHARE = 0.25
_MIN_COLUMN_EM = 60.0


def order_page(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces in reading order; sets `order` (from 0) and `column` (counts up at each jump to a column's top)."""
    canonical = sorted(pieces, key=place_key)
    ordered: list[Piece] = []
    for column, members in enumerate(_columns(canonical, _MAX_DEPTH)):
        for piece in members:
            piece.column, piece.order = column, len(ordered)
            ordered.append(piece)
    return ordered


def _columns(pieces: list[Piece], depth: int) -> list[list[Piece]]:
    """Runs of pieces read straight down, in reading order."""
    gutter = _gutter(pieces) if depth and len(pieces) >= 4 else None
    if gutter is None:
        return [_by_rows(pieces)] if pieces else []
    spanning = [piece for piece in pieces if piece.bbox_norm[0] < gutter - 5 and piece.bbox_norm[2] > gutter + 5]
    others = [piece for piece in pieces if piece not in set(spanning)]
    runs: list[list[Piece]] = []
    pending: list[Piece] = []
    for bar in [*spanning, None]:
        limit = bar.bbox_norm[1] if bar else float("inf")
        band = [piece for piece in others if piece.y_centre < limit]
        others = [piece for piece in others if piece.y_centre >= limit]
        left = [piece for piece in band if (piece.bbox_norm[0] + piece.bbox_norm[2]) / 2 < gutter]
        right = [piece for piece in band if (piece.bbox_norm[0] + piece.bbox_norm[2]) / 2 >= gutter]
        if left and right and _overlap(left, right):
            if pending:
                runs.append(_by_rows(pending))
                pending = []
            runs += _columns(left, depth - 1) + _columns(right, depth - 1)
        else:
            pending += band
        if bar:
            pending.append(bar)
    if pending:
        runs.append(_by_rows(pending))
    return runs


def _gutter(pieces: Sequence[Piece]) -> float | None:
    """The x at which two columns of running text part, or None.

    Looks at how much ink height covers each x; the gutter is the emptiest, widest strip in the middle of the text that
    leaves a real column on both sides.
    """
    left = min(piece.bbox_norm[0] for piece in pieces)
    right = max(piece.bbox_norm[2] for piece in pieces)
    if right - left < 100:
        return None
    scale = _BINS / (right - left)
    covered = np.zeros(_BINS + 1)
    for piece in pieces:
        height = piece.bbox_norm[3] - piece.bbox_norm[1]
        start, stop = int((piece.bbox_norm[0] - left) * scale), int(np.ceil((piece.bbox_norm[2] - left) * scale))
        covered[start] += height
        covered[min(stop, _BINS)] -= height
    ink = np.cumsum(covered)[:_BINS]
    low, high = int(_BINS * _MIN_COLUMN_SHARE), int(_BINS * (1 - _MIN_COLUMN_SHARE))
    emptiest = ink[low:high].min()
    best: tuple[int, float] | None = None
    start_bin: int | None = None
    for position in range(low, high + 1):
        if position < high and ink[position] <= emptiest + 1e-6:
            start_bin = position if start_bin is None else start_bin
        elif start_bin is not None:
            width = position - start_bin
            if best is None or width > best[0]:
                best = (width, left + (start_bin + position) / 2 / scale)
            start_bin = None
    if best is None or best[0] / scale < 8:
        return None
    gutter = best[1]
    sides = [
        [piece for piece in pieces if piece.bbox_norm[2] <= gutter + 5],
        [piece for piece in pieces if piece.bbox_norm[0] >= gutter - 5],
    ]
    if not all(_is_column(side, right - left) for side in sides) or not _overlap(*sides):
        return None
    return gutter


def _is_column(pieces: Sequence[Piece], width: float) -> bool:
    """Whether the pieces make up a column of running text: wide enough, and with text enough not to be labels."""
    if not pieces:
        return False
    widest = max(piece.bbox_norm[2] - piece.bbox_norm[0] for piece in pieces)
    pictured = any(piece.label in (BlockLabel.TABLE, BlockLabel.PICTURE) for piece in pieces)
    amount = sum(text_width_em(piece.text) for piece in pieces)
    return widest >= 0.7 * _MIN_COLUMN_SHARE * width and (pictured or amount >= _MIN_COLUMN_EM)


def _overlap(left: Sequence[Piece], right: Sequence[Piece]) -> bool:
    """Whether the two sides stand beside each other (and not one above the other)."""
    top = max(min(p.bbox_norm[1] for p in left), min(p.bbox_norm[1] for p in right))
    bottom = min(max(p.bbox_norm[3] for p in left), max(p.bbox_norm[3] for p in right))
    return bottom - top > 0.01 * NORM_MAX


def _by_rows(pieces: Sequence[Piece]) -> list[Piece]:
    """From top to bottom; pieces whose first lines share a row from left to right."""
    ordered = sorted(pieces, key=place_key)
    rows: list[list[Piece]] = []
    for piece in ordered:
        height = min(piece.line_height_norm, piece.bbox_norm[3] - piece.bbox_norm[1])
        if rows and piece.bbox_norm[1] - rows[-1][0].bbox_norm[1] < 0.5 * height:
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return [piece for row in rows for piece in sorted(row, key=lambda p: (p.bbox_norm[0], p.bbox_norm[1], p.text))]
