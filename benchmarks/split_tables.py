"""A seeded set of 60 tables that pages cut, as an engine would read them, and the scores of what is made of them.

Each case is one document of two or three pages: prose, then a table that reaches the end of its page, then its
continuation (or another table) at the top of the next. Kinds: the header printed again or not, marked as header or not,
now and then with a wrong letter; a row cut in the middle; trailing columns that are empty on the second page and
therefore lost; and pairs that must stay apart: other columns, another caption, another header, other kinds of values.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from apted import APTED
from apted import Config as AptedConfig
from rapidfuzz.distance import Levenshtein

from ocr2_core.blocks import Block, BlockLabel, PageBlocks

Rows = list[list[str]]

_PARTS = (
    *("bearing", "bracket", "bushing", "cable", "clamp", "coil", "connector", "cover", "coupling", "diode", "fan"),
    *("filter", "flange", "fuse", "gasket", "gear", "gland", "hinge", "hose", "impeller", "insulator", "latch"),
    *("lever", "motor", "nozzle", "nut", "pin", "piston", "pulley", "pump", "relay", "ring", "rotor"),
)
_WORDS = ("front", "rear", "upper", "lower", "inner", "outer", "main", "spare", "sealed", "heavy", "light", "fixed")
_NOTES = (
    "Replace it together with the seal and the two screws that hold the cover in place",
    "Tighten crosswise in three steps while the housing is still warm from the test run",
    "Grease before mounting and wipe off what is pressed out between the two faces",
    "Order by length and colour because the old drawing numbers are no longer valid",
)
_HEADERS = ("Part", "Quantity", "Torque Nm", "Order number", "Remarks")
_OTHER_HEADERS = ("Symptom", "Probable cause", "Remedy", "See page", "Action")
_WIDTH_PT, _HEIGHT_PT = 595.0, 842.0


@dataclass(frozen=True, slots=True)
class Case:
    """`truth`: the tables as one should read them, header rows included."""

    kind: str
    pages: list[PageBlocks]
    truth: list[Rows]


def cases(seed: int = 0) -> list[Case]:
    """The 60."""
    rng = random.Random(seed)
    kinds = [
        *["header repeated"] * 10,
        *["no header"] * 10,
        *["three pages"] * 4,
        *["split row"] * 10,
        *["split row under a header"] * 4,
        *["empty columns"] * 6,
        *["unequal columns"] * 6,
        *["other caption"] * 2,
        *["other header, marked"] * 3,
        *["other header, plain"] * 3,
        *["other values"] * 2,
    ]
    return [_case(rng, kind) for kind in kinds]


def row_recall(truth: Sequence[Rows], predicted: Sequence[Rows]) -> float:
    """Share of the truth's rows that stand, cell for cell, in one of the predicted tables."""
    read = {tuple(row) for table in predicted for row in table}
    rows = [row for table in truth for row in table]
    return sum(tuple(row) in read for row in rows) / len(rows)


def has_wrong_merge(truth: Sequence[Rows], predicted: Sequence[Rows]) -> bool:
    """Whether one predicted table holds rows of two true ones."""
    for table in predicted:
        read = {tuple(row) for row in table}
        if sum(any(tuple(row) in read for row in rows) for rows in truth) > 1:
            return True
    return False


def teds(truth: Rows, predicted: Rows) -> float:
    """Tree-edit-distance similarity of two tables (Zhong et al., 2020, without spans): 1 for the same table.

    Cells cost the normalised edit distance of their texts.
    """
    first, second = _tree(truth), _tree(predicted)
    larger = max(_size(first), _size(second))
    return float(1 - APTED(first, second, _Costs()).compute_edit_distance() / larger)


def _case(rng: random.Random, kind: str) -> Case:
    columns = rng.randint(3, 5)
    is_marked = rng.random() < 0.5
    header = [_HEADERS[column] for column in range(columns)]
    upper, lower = ([_row(rng, columns) for _ in range(rng.randint(3, 8))] for _ in range(2))
    truth = [[header, *upper, *lower]]
    first: Rows = [header, *upper]
    if kind == "header repeated":
        return _pages(kind, [(first, is_marked), ([_misread(rng, header), *lower], is_marked)], truth)
    if kind == "no header":
        return _pages(kind, [(first, is_marked), (lower, False)], truth)
    if kind == "three pages":
        more = [_row(rng, columns) for _ in range(rng.randint(3, 8))]
        is_repeated = rng.random() < 0.5
        parts = [([header, *rows] if is_repeated else rows, is_marked and is_repeated) for rows in (lower, more)]
        return _pages(kind, [(first, is_marked), *parts], [[header, *upper, *lower, *more]])
    if kind.startswith("split row"):
        note = rng.choice(_NOTES).split()
        cut = rng.randint(4, len(note) - 4)
        whole = [*_row(rng, columns - 1), " ".join(note)]
        head = [*whole[:-1], " ".join(note[:cut])]
        tail = [*[""] * (columns - 1), " ".join(note[cut:])]
        wordy = [[*row[:-1], rng.choice(_NOTES)] for row in upper]
        below = [[*row[:-1], rng.choice(_NOTES)] for row in lower]
        header = [*header[:-1], "Remarks"]
        again = [header] if kind.endswith("header") else []
        parts = [([header, *wordy, head], is_marked), ([*again, tail, *below], is_marked and bool(again))]
        return _pages(kind, parts, [[header, *wordy, whole, *below]])
    if kind == "empty columns":
        header = [*header, "Remarks"]
        sparse = [[*row, rng.choice(_WORDS) if number == 1 else ""] for number, row in enumerate(upper)]
        padded = [[*row, ""] for row in lower]
        return _pages(kind, [([header, *sparse], is_marked), (lower, False)], [[header, *sparse, *padded]])
    if kind == "unequal columns":
        other_columns = columns - 1 if columns == len(_HEADERS) or rng.random() < 0.5 else columns + 1
        other = [_row(rng, other_columns) for _ in range(4)]
        return _pages(kind, [(first, is_marked), (other, False)], [first, other])
    if kind == "other caption":
        return _pages(kind, [(first, False), (lower, False)], [first, lower], caption="Table 7: Spare parts")
    if kind == "other values":
        other = [
            [rng.choice(_NOTES) if column else str(number + 1) for column in range(columns)] for number in range(4)
        ]
        return _pages(kind, [(first, is_marked), (other, False)], [first, other])
    other = [[_OTHER_HEADERS[column] for column in range(columns)], *lower]
    return _pages(kind, [(first, is_marked), (other, kind.endswith("marked"))], [first, other])


def _row(rng: random.Random, columns: int) -> list[str]:
    cells = [
        f"{rng.choice(_WORDS)} {rng.choice(_PARTS)} {rng.randint(10, 99)}".capitalize(),
        str(rng.randint(1, 24)),
        f"{rng.randint(1, 90)}.{rng.randint(0, 9)}",
        f"{rng.choice('ABEHKT')}-{rng.randint(1000, 9999)}",
        rng.choice(_NOTES),
    ]
    return cells[:columns]


def _misread(rng: random.Random, header: list[str]) -> list[str]:
    """Every fourth header with one wrong letter."""
    if rng.random() >= 0.25:
        return header
    return [header[0], header[1][:-1] + "v", *header[2:]]


def _pages(kind: str, parts: list[tuple[Rows, bool]], truth: list[Rows], caption: str = "") -> Case:
    pages = []
    for index, (rows, is_marked) in enumerate(parts):
        is_first, is_last = index == 0, index == len(parts) - 1
        top = 620.0 if is_first else 70.0
        blocks = [_block(BlockLabel.TEXT, "The following parts are needed for the work described here.", 80)] * is_first
        if caption and is_last:
            blocks.append(_block(BlockLabel.CAPTION, caption, 50))
        bottom = 300.0 if is_last and not is_first else 930.0
        blocks.append(Block(label=BlockLabel.TABLE, bbox_norm=(90, top, 910, bottom), text=_html(rows, is_marked)))
        if is_last:
            blocks.append(_block(BlockLabel.TEXT, "All parts can be had from the maker's stores.", 500))
        pages.append(PageBlocks(page_index=index, width_pt=_WIDTH_PT, height_pt=_HEIGHT_PT, blocks=blocks))
    return Case(kind, pages, truth)


def _block(label: BlockLabel, text: str, top: float) -> Block:
    return Block(label=label, bbox_norm=(90, top, 700, top + 12), text=text)


def _html(rows: Rows, is_marked: bool) -> str:
    lines = []
    for number, row in enumerate(rows):
        tag = "th" if is_marked and number == 0 else "td"
        lines.append("<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in row) + "</tr>")
    return f"<table>{''.join(lines)}</table>"


class _Node:
    """What APTED walks."""

    def __init__(self, name: str, text: str = "", children: Sequence[_Node] = ()) -> None:
        self.name, self.text, self.children = name, text, list(children)


class _Costs(AptedConfig):  # type: ignore[misc]
    def rename(self, node1: _Node, node2: _Node) -> float:
        if node1.name != node2.name:
            return 1.0
        return float(Levenshtein.normalized_distance(node1.text, node2.text))


def _tree(rows: Rows) -> _Node:
    return _Node("table", children=[_Node("tr", children=[_Node("td", text) for text in row]) for row in rows])


def _size(node: _Node) -> int:
    return 1 + sum(map(_size, node.children))
