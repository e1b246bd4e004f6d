"""Levels of all headings by one optimisation over the whole document.

Every source of evidence sorts the headings into classes: numbering by form and depth, style by type size and weight,
the contents by indent or number, the outline by its own level. A class has one level V in the document. We look for
heading levels l and class levels V that minimise

    sum over headings i and sources s:  w_s · |l_i − V_s(class of i)|
    + sum over neighbours:              w_change where two headings of one style take different levels, or of two
                                        clearly different styles take one level
    subject to                          l_1 = 1,  l_i ≤ l_{i−1} + 1   (no level is skipped),

by turns: l for fixed V exactly, by dynamic programming over the sequence (Viterbi); V for fixed l exactly, as weighted
medians (numbering, contents and outline move as a whole, so that their own depths stay in step). Each turn lowers the
cost, so it ends; a few turns are enough. Linear in the number of headings. No level is decided page by page.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from structure_recovery.candidates import Candidate
from structure_recovery.elements import weighted_median
from structure_recovery.numbering import FIXED_DEPTH, NumberKind

MAX_LEVEL = 9
MAX_TURNS = 12
WEIGHTS = {"number": 2.0, "free number": 1.2, "contents": 1.5, "outline": 3.0, "style": 1.0}
CHANGE = 0.3
# Two type sizes are told apart from this difference of their logarithms on.
SIZE_STEP = 0.055
ESTIMATED_SIZE_STEP = 0.1


@dataclass(frozen=True)
class Levels:
    """The levels, from 1, in the order of the headings, and the level every source speaks for: {source: level}."""

    levels: list[int]
    votes: list[dict[str, int]]
    cost: float


@dataclass(slots=True)
class _Membership:
    """A heading's class in one source; `depth` is given where classes of that source keep a fixed distance."""

    source: str
    key: Hashable
    depth: int | None


def assign_levels(headings: Sequence[Candidate]) -> Levels:
    """Find the levels of `headings`, all of a document's, in reading order."""
    if not headings:
        return Levels([], [], 0.0)
    styles = style_clusters(headings)
    implied = _implied_depths(headings)
    deeper = _below_numbered(styles, implied)
    memberships = [
        _memberships(heading, style, depth, is_deeper)
        for heading, style, depth, is_deeper in zip(headings, styles, implied, deeper, strict=True)
    ]
    class_levels = _first_guess(memberships, styles)
    levels: list[int] = []
    cost = math.inf
    for _ in range(MAX_TURNS):
        levels, new_cost = _best_levels(memberships, class_levels, styles)
        if new_cost >= cost - 1e-9:
            break
        cost = new_cost
        class_levels = _refit(levels, memberships, class_levels)
    votes = [
        {member.source: max(1, class_levels[member.source, member.key]) for member in members}
        for members in memberships
    ]
    return Levels(levels, votes, round(cost, 3))


def style_clusters(headings: Sequence[Candidate]) -> list[int]:
    """Number of each heading's style, 0 for the most prominent: sizes cut at their gaps, then bold before light."""
    order = sorted(range(len(headings)), key=lambda i: -headings[i].size_ratio)
    groups: list[list[int]] = []
    for index in order:
        size = math.log(headings[index].size_ratio)
        if groups:
            last = math.log(headings[groups[-1][-1]].size_ratio)
            mean = sum(math.log(headings[i].size_ratio) for i in groups[-1]) / len(groups[-1])
            step = SIZE_STEP if headings[index].is_size_measured else ESTIMATED_SIZE_STEP
            if last - size < step and mean - size < 2 * step:
                groups[-1].append(index)
                continue
        groups.append([index])
    clusters = [0] * len(headings)
    number = 0
    for group in groups:
        light = [i for i in group if headings[i].is_bold is False]
        bold = [i for i in group if headings[i].is_bold is not False]
        for members in (bold, light):
            for index in members:
                clusters[index] = number
            number += bool(members)
    return clusters


def _implied_depths(headings: Sequence[Candidate]) -> list[int | None]:
    """The depth of each heading's number: its own, the one its contents entry prints, or the one a gap leaves to it."""
    depths: list[int | None] = []
    for heading in headings:
        own = heading.numbering
        entry = heading.entry.numbering if heading.entry else None
        known = own if own is not None and own.kind in FIXED_DEPTH else entry
        depths.append(known.depth if known is not None and known.kind in FIXED_DEPTH else None)
    numbered = [i for i, heading in enumerate(headings) if heading.numbering and heading.numbering.kind in FIXED_DEPTH]
    for first, last in pairwise(numbered):
        before, after = headings[first].numbering, headings[last].numbering
        assert before is not None
        assert after is not None
        if last == first + 2 and before.series == after.series and after.ordinal == before.ordinal + 2:
            # 2.3, a heading whose number was lost, 2.5
            depths[first + 1] = depths[first + 1] or before.depth
    return depths


def _below_numbered(styles: Sequence[int], depths: Sequence[int | None]) -> list[bool]:
    """Headings without a number in a section whose headings of this very style have one.

    Where numbering ends at some depth, a heading without number set like the deepest numbered ones is one deeper.
    """
    mostly: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for style, depth in zip(styles, depths, strict=True):
        mostly[style][depth is not None] += 1
    deeper = []
    last_numbered: int | None = None
    for style, depth in zip(styles, depths, strict=True):
        if depth is not None:
            last_numbered = style
        plain, numbered = mostly[style]
        deeper.append(
            depth is None and numbered >= max(2, plain) and last_numbered is not None and last_numbered >= style
        )
    return deeper


def _memberships(heading: Candidate, style: int, depth: int | None, is_deeper: bool) -> list[_Membership]:
    members = [_Membership("style", (style, is_deeper), None)]
    if depth is not None:
        members.append(_Membership("number", depth, depth))
    elif heading.numbering is not None:
        members.append(_Membership("free number", heading.numbering.kind, None))
    if heading.entry is not None and depth is None:
        members.append(_Membership("contents", ("indent", heading.entry.indent), None))
    if heading.outline_level is not None:
        members.append(_Membership("outline", heading.outline_level, heading.outline_level))
    return members


def _first_guess(
    memberships: Sequence[Sequence[_Membership]], styles: Sequence[int]
) -> dict[tuple[str, Hashable], int]:
    """Class levels to start from: depths as printed, one lower where the document has parts; styles between those."""
    fixed = [member.depth for members in memberships for member in members if member.source == "number"]
    base = 1 - min((depth for depth in fixed if depth is not None), default=1)
    guess: dict[tuple[str, Hashable], int] = {}
    known: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for members, style in zip(memberships, styles, strict=True):
        for member in members:
            if member.depth is not None:
                shift = base if member.source == "number" else 0
                guess[member.source, member.key] = member.depth + shift
                known[style].append((member.depth + shift, WEIGHTS[member.source]))
    style_level: dict[int, int] = {}
    previous = 0
    for style in range(max(styles) + 1):
        if known[style]:
            level = int(weighted_median(known[style]))
        else:
            below = [int(weighted_median(known[later])) for later in range(style + 1, max(styles) + 1) if known[later]]
            level = min([previous + 1, *below[:1]]) if below else previous + 1
        style_level[style] = max(level, 1)
        previous = style_level[style]
    for style, level in style_level.items():
        guess["style", (style, False)] = level
        guess["style", (style, True)] = min(level + 1, MAX_LEVEL)
    free: dict[tuple[str, Hashable], list[tuple[float, float]]] = defaultdict(list)
    nesting: list[Hashable] = []
    for members, style in zip(memberships, styles, strict=True):
        for member in members:
            if member.depth is None and member.source != "style":
                free[member.source, member.key].append((style_level[style], 1.0))
                if member.source == "free number" and member.key not in nesting:
                    nesting.append(member.key)
    for key, values in free.items():
        guess[key] = int(weighted_median(values))
    deepest = max((guess["number", depth] for depth in fixed if depth is not None), default=0)
    for step, kind in enumerate(nesting, 1):
        # Forms without a depth of their own nest in the order in which they first appear.
        guess["free number", kind] = _free_level(kind, deepest, step)
    return guess


def _free_level(kind: Hashable, deepest: int, step: int) -> int:
    if kind in (NumberKind.CJK_COMMA, NumberKind.CJK_PARENTHESIS, NumberKind.PARENTHESIS, NumberKind.CJK_ARTICLE):
        return min(deepest + step, MAX_LEVEL)
    return step


def _best_levels(
    memberships: Sequence[Sequence[_Membership]], class_levels: dict[tuple[str, Hashable], int], styles: Sequence[int]
) -> tuple[list[int], float]:
    """Viterbi: the cheapest sequence of levels that starts at 1 and never goes down by more than one."""
    best = [math.inf] * (MAX_LEVEL + 1)
    came_from: list[list[int]] = []
    for position, members in enumerate(memberships):
        unary = [
            sum(WEIGHTS[m.source] * abs(level - class_levels[m.source, m.key]) for m in members)
            for level in range(MAX_LEVEL + 1)
        ]
        step, choice = [math.inf] * (MAX_LEVEL + 1), [0] * (MAX_LEVEL + 1)
        for level in range(1, MAX_LEVEL + 1):
            if position == 0:
                step[level] = unary[level] if level == 1 else math.inf
                continue
            same_style = styles[position] == styles[position - 1]
            for before in range(max(1, level - 1), MAX_LEVEL + 1):
                change = CHANGE if same_style != (before == level) else 0.0
                if best[before] + change + unary[level] < step[level]:
                    step[level], choice[level] = best[before] + change + unary[level], before
        best = step
        came_from.append(choice)
    level = min(range(1, MAX_LEVEL + 1), key=lambda value: best[value])
    cost = best[level]
    levels = [level]
    for choice in reversed(came_from[1:]):
        level = choice[level]
        levels.append(level)
    return levels[::-1], cost


def _refit(
    levels: Sequence[int],
    memberships: Sequence[Sequence[_Membership]],
    class_levels: dict[tuple[str, Hashable], int],
) -> dict[tuple[str, Hashable], int]:
    """The class levels that fit `levels` best; sources with depths of their own shift as a whole."""
    values: dict[tuple[str, Hashable], list[tuple[float, float]]] = defaultdict(list)
    shifts: dict[str, list[tuple[float, float]]] = defaultdict(list)
    depths: dict[tuple[str, Hashable], int] = {}
    for level, members in zip(levels, memberships, strict=True):
        for member in members:
            if member.depth is None:
                values[member.source, member.key].append((level, 1.0))
            else:
                shifts[member.source].append((level - member.depth, 1.0))
                depths[member.source, member.key] = member.depth
    refitted = dict(class_levels)
    for free_key, found in values.items():
        refitted[free_key] = int(weighted_median(found))
    for (source, key), depth in depths.items():
        refitted[source, key] = depth + int(weighted_median(shifts[source]))
    return refitted
