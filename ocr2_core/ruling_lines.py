"""Finds printed rules (straight lines) on a page image and the cell grids they form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ocr2_core.geometry import BBoxNorm, from_pixels

_SHORTEST_RULE_PT = 16.0
_SHORTEST_FREE_RULE_PT = 36.0  # shorter ones outside grids are dashes and underscores
_SHORTEST_RUN_PT = 11.0  # longer than the straight parts of letters in body type
_WIDEST_BREAK_PT = 4.0
_THICKEST_RULE_PT = 6.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight printed line in pixels; `place` is its y (horizontal) or x (vertical), `start` < `end` along it."""

    place: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class GridCell:
    """One cell of a ruled table: 0-based place, spans, box."""

    row: int
    column: int
    row_span: int
    column_span: int
    bbox_norm: BBoxNorm


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells that rules form. A grid of one cell is a frame."""

    bbox_norm: BBoxNorm
    row_count: int
    column_count: int
    cells: tuple[GridCell, ...]


@dataclass(frozen=True, slots=True)
class Ruling:
    """All that was found on one page; `horizontal_norm` are the free horizontal rules (boxes), outside grids."""

    grids: tuple[Grid, ...] = ()
    horizontal_norm: tuple[BBoxNorm, ...] = ()


def find_ruling(gray: NDArray[np.uint8], dpi: float) -> Ruling:
    """Rules and grids of an upright page, (height_px, width_px).

    Long runs of ink are kept by morphological opening in each direction; rules that meet form a grid; a missing rule
    between two cells merges them.
    """
    import cv2

    height_px, width_px = gray.shape
    if int(gray.max()) - int(gray.min()) < 40:
        return Ruling()
    blurred = cv2.boxFilter(gray, -1, (3, 3))
    background = cv2.medianBlur(cv2.resize(gray, None, fx=0.125, fy=0.125, interpolation=cv2.INTER_AREA), 21)
    background = cv2.resize(background, (width_px, height_px))
    mask = ((background.astype(np.int16) - blurred.astype(np.int16)) > 40).astype(np.uint8)
    horizontal = _rules(mask, dpi, _SHORTEST_RULE_PT)
    vertical = _rules(np.ascontiguousarray(mask.T), dpi, _SHORTEST_RULE_PT)
    reach = max(4.0, 3.0 * dpi / 72)
    grids: list[Grid] = []
    used: set[int] = set()
    for hs, vs in _connected(horizontal, vertical, reach):
        grid = _grid([horizontal[i] for i in hs], [vertical[i] for i in vs], reach, mask)
        if grid is not None:
            grids.append(grid)
            used.update(hs)
    free = tuple(
        from_pixels((rule.start, rule.place, rule.end, rule.place + 1), width_px, height_px)
        for index, rule in enumerate(horizontal)
        if index not in used and rule.end - rule.start >= _SHORTEST_FREE_RULE_PT * dpi / 72
    )
    return Ruling(tuple(grids), free)


def _rules(mask: NDArray[np.uint8], dpi: float, shortest_pt: float) -> list[Rule]:
    """Horizontal rules of a mask: runs no letter has, joined where they lie on one line."""
    import cv2

    point = dpi / 72
    run = round(_SHORTEST_RUN_PT * point)
    opened = cv2.morphologyEx(mask, cv2.MORPH_OPEN, cv2.getStructuringElement(cv2.MORPH_RECT, (run, 1)))
    # a slightly tilted rule is a stair of runs
    joined = cv2.dilate(opened, cv2.getStructuringElement(cv2.MORPH_RECT, (round(_WIDEST_BREAK_PT * point), 3)))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(joined, connectivity=8)
    widen = round(_WIDEST_BREAK_PT * point) // 2
    rules = []
    for index in range(1, count):
        x, y, width, height, _ = (int(value) for value in stats[index])
        length = width - 2 * widen
        if length < shortest_pt * point or height - 2 > _THICKEST_RULE_PT * point + 0.012 * width:
            continue
        inside = (labels[y : y + height, x : x + width] == index) & (opened[y : y + height, x : x + width] > 0)
        covered = int(inside.any(axis=0).sum())
        if covered >= 0.8 * length and int(inside.sum()) <= _THICKEST_RULE_PT * point * length:
            rules.append(Rule(y + (height - 1) / 2, x + widen, x + width - widen))
    return rules


def _connected(horizontal: list[Rule], vertical: list[Rule], reach: float) -> list[tuple[list[int], list[int]]]:
    parent = list(range(len(horizontal) + len(vertical)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    offset = len(horizontal)
    for i, h in enumerate(horizontal):
        for j, v in enumerate(vertical):
            if h.start - reach <= v.place <= h.end + reach and v.start - reach <= h.place <= v.end + reach:
                parent[root(i)] = root(offset + j)
    groups: dict[int, tuple[list[int], list[int]]] = {}
    for i in range(len(horizontal)):
        groups.setdefault(root(i), ([], []))[0].append(i)
    for j in range(len(vertical)):
        groups.setdefault(root(offset + j), ([], []))[1].append(j)
    return [(hs, vs) for hs, vs in groups.values() if len(hs) >= 2 and vs]


def _grid(hs: list[Rule], vs: list[Rule], reach: float, mask: NDArray[np.uint8]) -> Grid | None:
    height_px, width_px = mask.shape
    ys = _places([rule.place for rule in hs], reach)
    xs = _places([rule.place for rule in vs], reach)
    left, right = min(rule.start for rule in hs), max(rule.end for rule in hs)
    # tables without outer verticals are open at the sides: the horizontal rules' ends close them
    if left < xs[0] - 3 * reach:
        xs.insert(0, left)
    if right > xs[-1] + 3 * reach:
        xs.append(right)
    rows, columns = len(ys) - 1, len(xs) - 1
    if rows < 1 or columns < 1 or xs[-1] - xs[0] < 6 * reach or ys[-1] - ys[0] < 4 * reach:
        return None
    owner = _merge_cells(xs, ys, _Separators(hs, vs, reach, mask))
    cells = []
    for group in sorted(set(owner.values())):
        members = [place for place, root in owner.items() if root == group]
        row0, row1 = min(row for row, _ in members), max(row for row, _ in members)
        column0, column1 = min(column for _, column in members), max(column for _, column in members)
        box = from_pixels((xs[column0], ys[row0], xs[column1 + 1], ys[row1 + 1]), width_px, height_px)
        cells.append(GridCell(row0, column0, row1 - row0 + 1, column1 - column0 + 1, box))
    box = from_pixels((xs[0], ys[0], xs[-1], ys[-1]), width_px, height_px)
    return Grid(box, rows, columns, tuple(cells))


@dataclass(frozen=True, slots=True)
class _Separators:
    """Answers whether there is a rule between two neighbouring cells."""

    horizontal: list[Rule]
    vertical: list[Rule]
    reach: float
    mask: NDArray[np.uint8]

    def below(self, y: float, start: float, end: float) -> bool:
        """A horizontal rule at y from x = start to end."""
        return _covered(self.horizontal, y, start, end, self.reach) or self._inked(self.mask, y, start, end)

    def beside(self, x: float, start: float, end: float) -> bool:
        """A vertical rule at x from y = start to end."""
        return _covered(self.vertical, x, start, end, self.reach) or self._inked(self.mask.T, x, start, end)

    def _inked(self, mask: NDArray[np.uint8], place: float, start: float, end: float) -> bool:
        """Rules between low rows are too short to be found alone; their ink is, which is straight and goes through."""
        margin = round(self.reach / 3)
        across = slice(max(0, round(place) - margin), round(place) + margin + 1)
        band = mask[across, round(start) + margin : round(end) - margin]
        return bool(band.size) and float(band.any(axis=0).mean()) > 0.95


def _merge_cells(xs: list[float], ys: list[float], separators: _Separators) -> dict[tuple[int, int], tuple[int, int]]:
    """For each place of the grid the top left place of the rectangle that it belongs to."""
    rows, columns = len(ys) - 1, len(xs) - 1
    owner = {(row, column): (row, column) for row in range(rows) for column in range(columns)}

    def join(one: tuple[int, int], other: tuple[int, int]) -> None:
        low, high = sorted((owner[one], owner[other]))
        for place, root in owner.items():
            if root == high:
                owner[place] = low

    for row in range(rows):
        for column in range(columns):
            if column + 1 < columns and not separators.beside(xs[column + 1], ys[row], ys[row + 1]):
                join((row, column), (row, column + 1))
            if row + 1 < rows and not separators.below(ys[row + 1], xs[column], xs[column + 1]):
                join((row, column), (row + 1, column))
    while _fill_up(owner, join):  # a merged cell is a rectangle
        pass
    return owner


def _fill_up(
    owner: dict[tuple[int, int], tuple[int, int]], join: Callable[[tuple[int, int], tuple[int, int]], None]
) -> bool:
    """Join what one group's bounding rectangle holds beside it; False when all groups are rectangles."""
    for group in set(owner.values()):
        members = [place for place, root in owner.items() if root == group]
        for row in range(min(r for r, _ in members), max(r for r, _ in members) + 1):
            for column in range(min(c for _, c in members), max(c for _, c in members) + 1):
                if owner[row, column] != group:
                    join((row, column), members[0])
                    return True
    return False


def _covered(rules: list[Rule], place: float, start: float, end: float, reach: float) -> bool:
    near = [rule for rule in rules if abs(rule.place - place) <= 1.5 * reach]
    covered = sum(max(0.0, min(rule.end, end) - max(rule.start, start)) for rule in near)
    return covered >= 0.6 * (end - start)


def _places(values: list[float], reach: float) -> list[float]:
    clusters: list[list[float]] = []
    for value in sorted(values):
        if clusters and value - clusters[-1][-1] <= 1.5 * reach:
            clusters[-1].append(value)
        else:
            clusters.append([value])
    return [sum(cluster) / len(cluster) for cluster in clusters]
