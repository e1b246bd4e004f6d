"""Find the headings: every short piece is weighed by all evidence in the whole document, none of it a gate."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ocr2_core.blocks import BlockLabel, OutlineEntry
from ocr2_core.geometry import NORM_MAX
from structure_recovery.contents import Contents, ContentsEntry, match_entries
from structure_recovery.elements import Piece, has_cjk, join_texts
from structure_recovery.furniture import PageLabel
from structure_recovery.numbering import Numbering, NumberKind, awaits_number, parse_numbering
from structure_recovery.vocabulary import ADMONITIONS, CAPTION_WORDS, CONTENTS_TITLES, letters_of

# A candidate is a heading from this sum of weights on (see _weigh).
THRESHOLD = 2.0
MAX_CHARACTERS = 200
MAX_LINES = 4

_HEADING_LABELS = (BlockLabel.TITLE, BlockLabel.SECTION_HEADER)
_CANDIDATE_LABELS = (*_HEADING_LABELS, BlockLabel.TEXT, BlockLabel.LIST_ITEM, BlockLabel.PAGE_HEADER)
CAPTION = re.compile(
    rf"^(?:{CAPTION_WORDS})\s*[A-Z]?\.?[0-9ivx]+(?:[.\-–][0-9]+)*\s*(?:[:.–—-]|\s|$)|^[図表图圖]\s*[0-9]", re.IGNORECASE
)
_BULLET = re.compile(r"^[•·∙●▪■◦‣\-–—*+o]\s")
_TERMINAL = (".", ";", ",", "。", "；", "，", "、", "…")
_ALL_CAPS = re.compile(r"^[^a-zà-ÿа-я]*$")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason for or against: its name, its weight (negative: against), and what was seen."""

    name: str
    weight: float
    detail: str = ""


@dataclass(eq=False, slots=True)
class Candidate:
    """A possible heading: one piece, or a few printed as one (a number beside its title, a title in two blocks).

    `kicker` holds a spelled number printed above the title ("CHAPTER ONE"): read as the number, not part of the text.
    """

    pieces: list[Piece]
    text: str
    size_ratio: float
    kicker: list[Piece] = field(default_factory=list)
    numbering: Numbering | None = None
    evidence: list[Evidence] = field(default_factory=list)
    entry: ContentsEntry | None = None
    outline_level: int | None = None

    @property
    def page_index(self) -> int:
        return self.pieces[0].page_index

    @property
    def is_bold(self) -> bool | None:
        return self.pieces[-1].is_bold

    @property
    def is_size_measured(self) -> bool:
        return all(piece.is_size_measured for piece in self.pieces)

    @property
    def is_named(self) -> bool:
        """Whether a number, the contents or the outline say that this is a heading."""
        numbered = self.numbering is not None and self.numbering.kind is not NumberKind.LETTER
        return numbered or self.entry is not None or self.outline_level is not None

    @property
    def score(self) -> float:
        return sum(evidence.weight for evidence in self.evidence)


def find_headings(
    body: Sequence[Piece],
    *,
    body_pt: float,
    contents: Contents,
    page_labels: Mapping[int, PageLabel],
    outline: Sequence[OutlineEntry] = (),
    title_page_index: int | None = None,
) -> list[Candidate]:
    """The headings among `body` (all pieces in reading order, without furniture, contents and title), in that order.

    `title_page_index` is the page that carries the document's title, if any: authors and dates there are no headings.
    """
    candidates = _candidates(body, body_pt)
    titles = [(candidate.text, candidate.page_index) for candidate in candidates]
    entries = contents.section_entries
    for position, number in match_entries(entries, titles, dict(page_labels)).items():
        candidates[position].entry = entries[number]
    for position, number in _match_outline(outline, titles).items():
        candidates[position].outline_level = outline[number].level
    first_contents_page = contents.page_indexes[0] if contents.page_indexes else 0
    bold_body = _bold_share(body) > 0.5
    following = {id(piece): body[index + 1] for index, piece in enumerate(body[:-1])}
    preceding = {id(piece): body[index - 1] for index, piece in enumerate(body) if index}
    for candidate in candidates:
        before = preceding.get(id((candidate.kicker or candidate.pieces)[0]))
        after = following.get(id(candidate.pieces[-1]))
        candidate.evidence = _weigh(candidate, before, after, bold_body)
        if not candidate.is_named and candidate.page_index == title_page_index:
            candidate.evidence.append(Evidence("on the title page", -3.0))
        elif not candidate.is_named and candidate.page_index < first_contents_page:
            candidate.evidence.append(Evidence("before the contents", -1.0))
    _weigh_absence(candidates, first_contents_page)
    _weigh_runs(candidates, following)
    _weigh_labels(candidates)
    _weigh_sequence(candidates)
    _weigh_style(candidates)
    headings = [candidate for candidate in candidates if candidate.score >= THRESHOLD]
    _drop_chance_numbers(headings)
    return headings


def _candidates(body: Sequence[Piece], body_pt: float) -> list[Candidate]:
    candidates: list[Candidate] = []
    used: set[Piece] = set()
    for index, piece in enumerate(body):
        if piece in used or not _may_be_heading(piece):
            continue
        pieces = [piece]
        for other in body[index + 1 : index + 4]:
            if not _continues_heading(pieces, other, body_pt):
                break
            pieces.append(other)
        used.update(pieces)
        text = _text_of(pieces)
        size = max(part.size_pt for part in pieces)
        candidate = Candidate(pieces, text, size / body_pt, numbering=parse_numbering(text))
        if candidate.numbering is not None:
            candidate.text = _spaced(text, candidate.numbering)
        if candidate.numbering is not None and candidate.numbering.is_spelled and candidate.numbering.title:
            while len(pieces) > 1 and letters_of(pieces[0].text) in letters_of(candidate.numbering.printed):
                candidate.kicker.append(pieces.pop(0))
            candidate.text = _text_of(pieces)
        candidates.append(candidate)
    return candidates


def _spaced(text: str, numbering: Numbering) -> str:
    """The text with a space behind its number, which OCR is apt to drop ("2.4Installation")."""
    number, rest = numbering.printed, text[len(numbering.printed) :]
    is_glued = numbering.kind is NumberKind.DECIMAL and text.startswith(number) and rest[:1].isalpha()
    return f"{number} {rest}" if is_glued else text


def _text_of(pieces: Sequence[Piece]) -> str:
    text = ""
    for piece in pieces:
        text = join_texts(text, piece.text)
    return text


def _may_be_heading(piece: Piece) -> bool:
    if (
        piece.label not in _CANDIDATE_LABELS
        or not 0 < len(piece.text) <= MAX_CHARACTERS
        or len(piece.lines) > MAX_LINES
    ):
        return False
    return any(character.isalnum() for character in piece.text)


def _continues_heading(pieces: Sequence[Piece], other: Piece, body_pt: float) -> bool:
    """Whether `other` is printed as part of the heading that `pieces` begin."""
    last = pieces[-1]
    if other.page_index != last.page_index or not _may_be_heading(other) or CAPTION.match(other.text):
        return False
    numbering = parse_numbering(" ".join(piece.text for piece in pieces))
    other_numbering = parse_numbering(other.text)
    gap_pt = (other.bbox_norm[1] - last.bbox_norm[3]) / NORM_MAX * last.height_pt
    larger = max(last.size_pt, other.size_pt)
    if len(pieces) == 1 and awaits_number(last.text):
        completed = parse_numbering(f"{last.text} {other.text}")
        return completed is not None and not completed.title and gap_pt < 2 * larger
    only_number = numbering is not None and not numbering.title
    if only_number:
        same_row = other.bbox_norm[1] < last.bbox_norm[3] and other.bbox_norm[3] > last.bbox_norm[1]
        if same_row and other.bbox_norm[0] > last.bbox_norm[0]:
            return True
        below = -0.3 * larger < gap_pt < 3.5 * larger
        is_word = numbering is not None and numbering.kind in (NumberKind.PART, NumberKind.CHAPTER, NumberKind.APPENDIX)
        stands_out = other.size_pt > 1.15 * body_pt or other.label in _HEADING_LABELS or other.is_bold is True
        return below and stands_out and other_numbering is None and (is_word or last.size_pt > 1.3 * body_pt)
    both_set_apart = all(piece.label in _HEADING_LABELS or piece.size_pt > 1.2 * body_pt for piece in (last, other))
    same_style = abs(math.log(other.size_pt / last.size_pt)) < 0.08 and last.is_bold == other.is_bold
    full_line = last.bbox_norm[2] - last.bbox_norm[0] > 0.5 * NORM_MAX
    close = -0.3 * larger < gap_pt < 0.6 * larger
    return both_set_apart and same_style and full_line and close and other_numbering is None


def _weigh(candidate: Candidate, before: Piece | None, after: Piece | None, bold_body: bool) -> list[Evidence]:
    """Evidence from the candidate itself, its neighbours, the contents and the outline."""
    evidence: list[Evidence] = []

    def add(name: str, weight: float, detail: str = "") -> None:
        evidence.append(Evidence(name, round(weight, 2), detail))

    first, last, text = candidate.pieces[0], candidate.pieces[-1], candidate.text
    numbering = candidate.numbering
    if any(piece.label in _HEADING_LABELS for piece in candidate.pieces):
        add("engine label", 1.6, str(first.label))
    if first.label is BlockLabel.LIST_ITEM or _BULLET.match(text):
        add("list item", -1.5)
    grown = math.log(candidate.size_ratio)
    if not candidate.is_size_measured:
        # an estimate from the box is good to 20 %: what lies within says nothing
        grown = math.copysign(max(abs(grown) - 0.18, 0.0), grown)
    if grown > 0.04:
        add("larger type", min(8 * grown, 2.2), f"{candidate.size_ratio:.2f} × body")
    elif grown < -0.12 and not candidate.is_bold:
        add("smaller type", -0.8, f"{candidate.size_ratio:.2f} × body")
    if candidate.is_bold and not bold_body:
        add("bold", 1.3)
    if last.is_monospace and numbering is None and last.label not in _HEADING_LABELS:
        add("monospaced", -1.5)
    if candidate.entry is not None:
        add("contents entry", 2.5, candidate.entry.title)
    if candidate.outline_level is not None:
        add("outline entry", 3.0)
    if numbering is not None and numbering.kind in (NumberKind.PART, NumberKind.CHAPTER, NumberKind.APPENDIX):
        add("number", 0.8, numbering.printed)
    elif numbering is not None and len(numbering.path) > 1:
        add("number", 0.6, numbering.printed)
    if CAPTION.match(text):
        add("caption", -3.0)
    if text.endswith(_TERMINAL) and not (numbering and not numbering.title):
        add("ends like a sentence", -1.5)
    elif text.endswith((":", "：")):
        add("ends with a colon", -1.0 if numbering else -2.0)
    words = numbering.title if numbering and numbering.title else text
    if words[:1].islower() and (numbering is None or len(numbering.path) < 2):
        add("begins in lower case", -0.7)
    length = len(text) * (2 if has_cjk(text) else 1)
    if length > 90:
        add("long", -(length - 90) / 30)
    if sum(character.isalpha() for character in words) * 2 < len(words.replace(" ", "")):
        add("few letters", -1.0)
    if len(letters_of(words)) < 2:
        add("one letter", -2.0)
    if letters_of(text) in CONTENTS_TITLES:
        add("names the contents", -1.0)
    if letters_of(words) in ADMONITIONS:
        add("opens a note", -3.0)
    if len(words) > 3 and _ALL_CAPS.match(words) and not has_cjk(words):
        add("capitals", 0.3)
    add_space(evidence, candidate, before, after)
    return evidence


def add_space(evidence: list[Evidence], candidate: Candidate, before: Piece | None, after: Piece | None) -> None:
    """White space above, and whether text follows below: a heading opens something."""
    first, last = candidate.pieces[0], candidate.pieces[-1]
    if before is None or before.page_index != first.page_index or before.column != first.column:
        evidence.append(Evidence("opens a column", 0.2))
    else:
        gap_pt = (first.bbox_norm[1] - before.bbox_norm[3]) / NORM_MAX * first.height_pt
        if gap_pt > 1.0 * first.size_pt:
            evidence.append(Evidence("space above", 0.5, f"{gap_pt:.0f} pt"))
        elif gap_pt < 0.35 * first.size_pt:
            evidence.append(Evidence("no space above", -0.5, f"{gap_pt:.0f} pt"))
    if after is None:
        evidence.append(Evidence("nothing follows", -0.5))
    elif after.page_index == last.page_index:
        beside = after.bbox_norm[1] < last.y_centre < after.bbox_norm[3] and after.bbox_norm[0] > last.bbox_norm[2] - 5
        if beside:
            evidence.append(Evidence("text beside it", -1.0))


def _weigh_runs(candidates: Sequence[Candidate], following: Mapping[int, Piece]) -> None:
    """Lines of one style right below each other, with nothing between, are a list or a label, not one heading each."""
    starts = {id(candidate.pieces[0]): candidate for candidate in candidates}
    for candidate in candidates:
        after = following.get(id(candidate.pieces[-1]))
        other = starts.get(id(after)) if after is not None else None
        if other is None or other.page_index != candidate.page_index:
            continue
        alike = abs(math.log(other.size_ratio / candidate.size_ratio)) < 0.05 and other.is_bold == candidate.is_bold
        pair = (candidate, other)
        if alike and not any(c.is_named for c in pair):
            for member in pair:
                if not any(evidence.name == "one of a run" for evidence in member.evidence):
                    member.evidence.append(Evidence("one of a run", -1.0))


def _weigh_absence(candidates: Sequence[Candidate], first_contents_page: int) -> None:
    """Where the contents list nearly all headings that are sure without them, not to be listed means something."""
    sure = [
        c
        for c in candidates
        if c.numbering is not None
        and c.page_index > first_contents_page
        and c.score - _weight_of(c, "contents entry") >= THRESHOLD
    ]
    listed = sum(candidate.entry is not None for candidate in sure)
    if len(sure) < 5 or listed < 0.85 * len(sure):
        return
    for candidate in candidates:
        if not candidate.is_named and candidate.page_index > first_contents_page:
            candidate.evidence.append(Evidence("not in the contents", -0.8, f"{listed} of {len(sure)} headings are"))


def _weigh_labels(candidates: Sequence[Candidate]) -> None:
    """Where the engine labels nearly all headings that are sure without its label, a missing label means something."""
    sure = [c for c in candidates if c.is_named and c.score - _weight_of(c, "engine label") >= THRESHOLD]
    labelled = sum(_weight_of(candidate, "engine label") > 0 for candidate in sure)
    if len(sure) < 5 or labelled < 0.85 * len(sure):
        return
    for candidate in candidates:
        if not _weight_of(candidate, "engine label") and not candidate.is_named:
            candidate.evidence.append(Evidence("no engine label", -0.8, f"{labelled} of {len(sure)} headings have one"))


def _weight_of(candidate: Candidate, name: str) -> float:
    return sum(evidence.weight for evidence in candidate.evidence if evidence.name == name)


def _weigh_sequence(candidates: Sequence[Candidate]) -> None:
    """Numbers that count on from one another speak for each other; the numbers of a list speak for nobody.

    Only candidates that something else already speaks for are counted on, so that a numbered list, set like the body,
    cannot vouch for itself; a number of two components or more vouches more than a lone one.
    """
    numbered = [c for c in candidates if c.numbering is not None and c.numbering.path]
    trusted: dict[tuple[bool, tuple[int, ...]], list[int]] = defaultdict(list)
    for order, candidate in enumerate(numbered):
        if candidate.score >= 1.0 and candidate.numbering is not None:
            trusted[candidate.numbering.alphabetic, candidate.numbering.path].append(order)
    for order, candidate in enumerate(numbered):
        numbering = candidate.numbering
        assert numbering is not None
        path = numbering.path
        if len(path) == 1 and numbering.kind is NumberKind.DECIMAL and candidate.score < 1.0:
            continue
        earlier = (*path[:-1], path[-1] - 1) if path[-1] > 1 else path[:-1]
        later = [(*path[:-1], path[-1] + 1), (*path, 1)]
        follows = bool(earlier) and any(other < order for other in trusted.get((numbering.alphabetic, earlier), ()))
        leads = any(other > order for key in later for other in trusted.get((numbering.alphabetic, key), ()))
        if not (follows or leads) and len(path) > 1 and len(trusted) >= 8:
            known_start = any((numbering.alphabetic, path[:length]) in trusted for length in range(1, len(path)))
            if not known_start and not any(
                key[1][0] == path[0] for key in trusted if key != (numbering.alphabetic, path)
            ):
                candidate.evidence.append(Evidence("number out of sequence", -1.5, numbering.printed))
        weight = (0.9 if follows else 0.0) + (0.7 if leads else 0.0)
        if weight:
            known = "follows" if follows else ""
            known += (" and " if follows and leads else "") + ("leads" if leads else "")
            factor = 1.0 if len(path) > 1 or numbering.kind is not NumberKind.DECIMAL else 0.7
            candidate.evidence.append(Evidence("number in sequence", round(weight * factor, 2), known))


def _weigh_style(candidates: Sequence[Candidate]) -> None:
    """A style (size, weight, label) that mostly sets headings speaks for its members, one that rarely does against."""
    styles: dict[tuple[int, bool | None, bool], list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        key = (
            round(math.log(candidate.size_ratio) / 0.06),
            candidate.is_bold,
            candidate.pieces[-1].label in _HEADING_LABELS,
        )
        styles[key].append(candidate)
    for members in styles.values():
        possible = [candidate for candidate in members if candidate.score >= THRESHOLD / 4]
        if len(members) < 4:
            continue
        sure = sum(candidate.score >= THRESHOLD for candidate in possible) / max(len(possible), 1)
        weight = 0.4 + 1.2 * (sure - 0.5) if sure > 0.5 else 1.0 * (sure - 0.5) if sure < 0.2 else 0.0
        if weight:
            for candidate in members:
                candidate.evidence.append(
                    Evidence("style of headings" if weight > 0 else "style of text", round(weight, 2))
                )


def _drop_chance_numbers(headings: Sequence[Candidate]) -> None:
    """A first word that merely looks like a number ("R Core Team", "A file") is one only where its series shows."""
    series = {
        (heading.numbering.alphabetic, heading.numbering.path[0], len(heading.numbering.path) > 1)
        for heading in headings
        if heading.numbering is not None
    }
    for heading in headings:
        numbering = heading.numbering
        if numbering is None or numbering.kind is not NumberKind.LETTER:
            continue
        neighbours = {
            (True, numbering.ordinal - 1, False),
            (True, numbering.ordinal + 1, False),
            (True, numbering.ordinal, True),
        }
        if not neighbours & series:
            heading.numbering = None


def _match_outline(outline: Sequence[OutlineEntry], titles: Sequence[tuple[str, int]]) -> dict[int, int]:
    """Bookmarks matched to titles: they name their page by index, so labels are not needed."""
    if not outline:
        return {}
    entries = [
        ContentsEntry(entry.title, PageLabel(entry.page_index, False) if entry.page_index is not None else None, 0, 0)
        for entry in outline
    ]
    pages: Iterable[int] = {page_index for _, page_index in titles}
    return match_entries(entries, titles, {page_index: PageLabel(page_index, False) for page_index in pages})


def _bold_share(body: Sequence[Piece]) -> float:
    texts = [piece for piece in body if piece.label is BlockLabel.TEXT]
    total = sum(len(piece.text) for piece in texts)
    return sum(len(piece.text) for piece in texts if piece.is_bold) / total if total else 0.0
