"""The printed contents: found over their pages, parsed into entries, matched to headings. Evidence, never a gate."""

from __future__ import annotations

import difflib
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ocr2_core.blocks import BlockLabel
from structure_recovery.elements import Piece, Row, rows_of
from structure_recovery.furniture import PageLabel
from structure_recovery.numbering import Numbering, parse_numbering, roman_value
from structure_recovery.vocabulary import CONTENTS_TITLES, LIST_TITLES, letters_of

MATCH_RATIO = 0.85
# A page belongs to the contents from this many entries on; fewer do on the pages beside one.
MIN_ENTRIES = 4

# A row's leader (dots, middle dots, underscores) is first replaced by this separator.
_SEPARATOR = "\x1f"
_LEADER = re.compile(r"\s*(?:(?:[.·・．_] ?){3,}|(?:… ?)+)[.·・．… ]*")
_LEADER_ENTRY = re.compile(
    rf"^(?P<title>[^{_SEPARATOR}]*[^{_SEPARATOR}\s])\s*{_SEPARATOR}\s*(?P<label>[0-9]{{1,4}}|[ivxlc]{{1,8}})$", re.I
)
_PLAIN_ENTRY = re.compile(r"^(?P<title>.*\S)\s(?P<label>[0-9]{1,4}|[ivxlc]{1,8})$")
_ENTRIES_IN_ONE_TEXT = re.compile(
    rf"(?P<title>[^{_SEPARATOR}]+?)\s*{_SEPARATOR}\s*(?P<label>[0-9]{{1,4}}|[ivxlc]{{1,8}})(?=\s|$)", re.I
)
_ONLY_LEADER = re.compile(r"^[\s.·…・．_-]+$")


@dataclass(frozen=True, slots=True)
class ContentsEntry:
    """One line of the printed contents. `indent` ranks its left edge among all entries, 0 the outermost."""

    title: str
    page_label: PageLabel | None
    contents_page_index: int
    indent: int
    numbering: Numbering | None = None


@dataclass(frozen=True)
class Contents:
    """All entries, the pieces they were read from with their pages, and all rows (title, label) of those pieces."""

    entries: tuple[ContentsEntry, ...] = ()
    pieces: frozenset[Piece] = frozenset()
    page_indexes: tuple[int, ...] = ()
    is_list: tuple[bool, ...] = ()
    rows_by_page: dict[int, list[tuple[str, str]]] = field(default_factory=dict)

    @property
    def section_entries(self) -> list[ContentsEntry]:
        """The entries that name sections: those of the contents, without lists of figures and tables."""
        return [entry for entry, is_list in zip(self.entries, self.is_list, strict=True) if not is_list]


@dataclass(slots=True)
class _Reading:
    """One row of a candidate page, read as an entry where it is one."""

    row: Row
    title: str = ""
    label: PageLabel | None = None
    printed_label: str = ""
    has_leader: bool = False
    kind: str = ""
    pieces: list[Piece] = field(default_factory=list)


def find_contents(pages: Sequence[Sequence[Piece]]) -> Contents:
    """Find and parse the contents in `pages` (each page's pieces in reading order, furniture already taken out)."""
    readings = [_read_page(page) for page in pages]
    chosen: dict[int, list[_Reading]] = {}
    for page_index, rows in enumerate(readings):
        entries = [row for row in rows if row.label]
        named = any(row.kind for row in rows)
        follows = page_index - 1 in chosen
        leaders = sum(row.has_leader for row in entries)
        enough = MIN_ENTRIES if not (named or follows) else 2
        # Leaders speak for themselves; bare numbers at the line ends (an index, a table) need a title or a neighbour.
        if len(entries) < enough or not (leaders >= 2 or named or (follows and leaders * 3 >= len(entries))):
            continue
        if leaders < len(entries) / 2 and not named and not _is_rising(entries):
            continue
        region = _region(rows)
        if sum(1 for row in region if row.label) >= max(2, 0.4 * len(region)):
            chosen[page_index] = region
    return _collect(pages, chosen)


def match_entries(
    entries: Sequence[ContentsEntry], titles: Sequence[tuple[str, int]], page_labels: dict[int, PageLabel]
) -> dict[int, int]:
    """Match entries to titles (text, page_index) given in reading order: {title position: entry position}.

    An exact title counts wherever it stands (the nearest to the page its entry names); a similar one (OCR, a line
    broken) on that page or its neighbours only. The offset between printed and counted pages is voted by exact
    matches and by the page numbers printed on the pages.
    """
    keys = [_keys(text) for text, _ in titles]
    by_key: dict[str, list[int]] = defaultdict(list)
    by_page: dict[int, list[int]] = defaultdict(list)
    for position, (_, page_index) in enumerate(titles):
        by_page[page_index].append(position)
        for key in keys[position]:
            by_key[key].append(position)
    pages_of = _page_finder(entries, titles, by_key, page_labels)
    matches: dict[int, int] = {}
    for number, entry in enumerate(entries):
        expected = pages_of(entry)
        wanted = _keys(entry.title)
        exact = [position for key in wanted for position in by_key.get(key, ()) if position not in matches]
        if expected is None:
            if len(set(exact)) == 1:
                matches[exact[0]] = number
            continue
        near = [position for position in exact if abs(titles[position][1] - expected) <= 1]
        if not near:
            scored = [
                (_similarity(wanted, keys[position]), -abs(titles[position][1] - expected), position)
                for page_index in (expected, expected + 1, expected - 1)
                for position in by_page.get(page_index, ())
                if position not in matches
            ]
            best = max(scored, default=(0.0, 0, -1))
            near = [best[2]] if best[0] >= MATCH_RATIO else exact if len(set(exact)) == 1 and len(wanted[0]) > 8 else []
        if near:
            best_position = min(near, key=lambda position: (abs(titles[position][1] - expected), position))
            matches[best_position] = number
    return matches


def _keys(text: str) -> list[str]:
    """The letters of a title with and without its number."""
    numbering = parse_numbering(text)
    whole = letters_of(text)
    bare = letters_of(numbering.title) if numbering and numbering.title else ""
    return [whole, bare] if len(bare) >= 2 and bare != whole else [whole]


def _similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """Best ratio of common letters among all pairs; 0 where it would stay below MATCH_RATIO anyway."""
    best = 0.0
    for a in first:
        for b in second:
            if not a or not b or abs(len(a) - len(b)) > 0.35 * max(len(a), len(b)):
                continue
            if len(set(a) & set(b)) < 0.6 * len(set(a) | set(b)):
                continue
            matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
            if matcher.quick_ratio() > max(best, MATCH_RATIO):
                best = max(best, matcher.ratio())
    return best


def _page_finder(
    entries: Sequence[ContentsEntry],
    titles: Sequence[tuple[str, int]],
    by_key: dict[str, list[int]],
    page_labels: dict[int, PageLabel],
) -> _PageFinder:
    offsets: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for page_index, label in page_labels.items():
        offsets[label.is_roman][page_index - label.value] += 1
    for entry in entries:
        if entry.page_label is None:
            continue
        for key in _keys(entry.title)[:1]:
            for position in by_key.get(key, ()):
                offsets[entry.page_label.is_roman][titles[position][1] - entry.page_label.value] += 1
    return _PageFinder(
        {(label.value, label.is_roman): page_index for page_index, label in sorted(page_labels.items(), reverse=True)},
        {is_roman: votes.most_common(1)[0][0] for is_roman, votes in offsets.items() if votes},
    )


@dataclass(frozen=True)
class _PageFinder:
    read: dict[tuple[int, bool], int]
    offset: dict[bool, int]

    def __call__(self, entry: ContentsEntry) -> int | None:
        label = entry.page_label
        if label is None:
            return None
        if (page_index := self.read.get((label.value, label.is_roman))) is not None:
            return page_index
        return label.value + self.offset[label.is_roman] if label.is_roman in self.offset else None


def _read_page(page: Sequence[Piece]) -> list[_Reading]:
    pieces = [piece for piece in page if piece.text and piece.label not in (BlockLabel.PICTURE, BlockLabel.FORMULA)]
    readings: list[_Reading] = []
    for row in rows_of(piece for piece in pieces if piece.label is not BlockLabel.TABLE):
        texts = [line.text.strip() for line in row.lines]
        whole = _LEADER.sub(_SEPARATOR, texts[0])
        several = len(texts) == 1 and whole.count(_SEPARATOR) > 1
        if several and len(found := list(_ENTRIES_IN_ONE_TEXT.finditer(whole))) > 1:
            readings += [
                _Reading(row, match["title"].strip(), _label(match["label"]), match["label"], True, pieces=row.pieces)
                for match in found
            ]
            if rest := whole[found[-1].end() :].replace(_SEPARATOR, " ").strip():
                readings.append(_Reading(row, rest, pieces=row.pieces))
            continue
        readings.append(_read_row(row, [text for text in texts if not _ONLY_LEADER.match(text)]))
    for piece in pieces:
        if piece.label is BlockLabel.TABLE:
            readings += _read_table(piece)
    _label_aligned(readings)
    return sorted(readings, key=lambda reading: reading.row.bbox_norm[1])


def _label_aligned(readings: Sequence[_Reading]) -> None:
    """Take the number a row ends with for its page label, too, where it stands right below those of sure entries."""
    edges = [reading.row.bbox_norm[2] for reading in readings if reading.has_leader]
    if len(edges) < 3:
        return
    edge = statistics.median(edges)
    for reading in readings:
        match = _PLAIN_ENTRY.match(reading.title)
        if reading.label is None and not reading.kind and match and abs(reading.row.bbox_norm[2] - edge) < 8:
            reading.label, reading.printed_label, reading.title = _label(match["label"]), match["label"], match["title"]


def _read_table(piece: Piece) -> list[_Reading]:
    """A contents page an engine took for a table: its rows, if the last cells are page numbers."""
    from structure_recovery.tables import parse_table

    grid = parse_table(piece.text)
    row = Row(piece.page_index, list(rows_of([piece])[0].lines), [piece])
    readings = []
    for cells in grid.texts():
        if filled := [cell for cell in cells if cell and not _ONLY_LEADER.match(cell)]:
            readings.append(_read_row(row, filled))
    labelled = [reading for reading in readings if reading.label]
    if len(labelled) < max(MIN_ENTRIES, 0.6 * len(readings)) or not _is_rising(labelled):
        return [_Reading(row, pieces=[piece])]
    leaders = sum(reading.has_leader for reading in labelled)
    numbered = sum(parse_numbering(reading.title) is not None for reading in labelled)
    return (
        readings if leaders * 3 >= len(labelled) or numbered * 2 >= len(labelled) else [_Reading(row, pieces=[piece])]
    )


def _read_row(row: Row, texts: list[str]) -> _Reading:
    text = " ".join(texts)
    letters = letters_of(text) if len(text) < 40 else ""
    if letters in CONTENTS_TITLES or letters in LIST_TITLES:
        return _Reading(row, text, kind="list" if letters in LIST_TITLES else "contents", pieces=row.pieces)
    had_leader = len(texts) < len(row.lines) or any(piece.label is BlockLabel.TOC_ENTRY for piece in row.pieces)
    match = _LEADER_ENTRY.match(_LEADER.sub(_SEPARATOR, text))
    had_leader = had_leader or match is not None
    match = match or _PLAIN_ENTRY.match(text)
    label = _label(match["label"]) if match else None
    gap = row.lines[-1].bbox_norm[0] - row.lines[-2].bbox_norm[2] if len(row.lines) > 1 else 0.0
    if match is None or label is None or not (had_leader or gap >= 20 or row.bbox_norm[2] >= 850):
        return _Reading(row, text.strip(), pieces=row.pieces)
    title = match["title"].rstrip(" .·…")
    return _Reading(row, title or match["title"], label, match["label"], had_leader, pieces=row.pieces)


def _label(text: str) -> PageLabel | None:
    if text.isdigit():
        return PageLabel(int(text), False)
    value = roman_value(text)
    return PageLabel(value, True) if value is not None else None


def _is_rising(rows: Sequence[_Reading]) -> bool:
    values = [row.label.value for row in rows if row.label and not row.label.is_roman]
    rising = sum(first <= second for first, second in pairwise(values))
    return len(values) > 1 and rising >= 0.85 * (len(values) - 1) and values[-1] > values[0]


def _region(rows: list[_Reading]) -> list[_Reading]:
    """From the contents' title or first entry to the last entry: text before and after it stays out."""
    marked = [position for position, row in enumerate(rows) if row.label or row.kind]
    start, stop = marked[0], marked[-1]
    # A wrapped first line of an entry stands above its page number.
    return rows[start : stop + 1]


def _collect(pages: Sequence[Sequence[Piece]], chosen: dict[int, list[_Reading]]) -> Contents:
    entries: list[tuple[_Reading, str, bool]] = []
    pieces: set[Piece] = set()
    in_list = False
    previous: int | None = None
    for page_index, rows in sorted(chosen.items()):
        pending = ""
        if previous is not None and page_index - previous > 1:
            in_list = False
        previous = page_index
        votes: Counter[Piece] = Counter()
        for row in rows:
            for piece in row.pieces:
                votes[piece] += 1
            if row.kind:
                in_list, pending = row.kind == "list", ""
            elif row.label is None:
                pending = f"{pending} {row.title}".strip()
            else:
                joins = pending and parse_numbering(row.title) is None
                entries.append((row, f"{pending} {row.title}".strip() if joins else row.title, in_list))
                pending = ""
        for piece, count in votes.items():
            # A block that holds more than the region's rows (the page's first paragraph) stays in the body.
            if piece.label is BlockLabel.TABLE or count * 2 >= max(len(piece.lines), 1):
                pieces.add(piece)
    indents = _indents([row for row, _, _ in entries])
    parsed = tuple(
        ContentsEntry(title, row.label, row.row.page_index, indent, parse_numbering(title))
        for (row, title, _), indent in zip(entries, indents, strict=True)
    )
    rows_by_page = {
        page_index: [
            (reading.title, reading.printed_label)
            for reading in _read_page([piece for piece in pages[page_index] if piece in pieces])
        ]
        for page_index in sorted(chosen)
    }
    is_list = tuple(is_list for _, _, is_list in entries)
    return Contents(parsed, frozenset(pieces), tuple(sorted(chosen)), is_list, rows_by_page)


def _indents(rows: Sequence[_Reading]) -> list[int]:
    """Rank of each entry's left edge; pages whose margins shift are aligned by their page numbers' right edge."""
    if not rows:
        return []
    right_edges: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        right_edges[row.row.page_index].append(row.row.bbox_norm[2])
    shift = {page_index: statistics.median(edges) for page_index, edges in right_edges.items()}
    reference = statistics.median(shift.values())
    lefts = [row.row.bbox_norm[0] - shift[row.row.page_index] + reference for row in rows]
    steps: list[float] = []
    for left in sorted(lefts):
        if not steps or left - steps[-1] > 9:
            steps.append(left)
        elif left > steps[-1]:
            steps[-1] = steps[-1] * 0.8 + left * 0.2
    return [min(range(len(steps)), key=lambda rank: abs(steps[rank] - left)) for left in lefts]
