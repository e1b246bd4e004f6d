"""Weigh candidates for headings. Weights of evidence add up; those against are negative.

The weights are judgement, not training: one strong sign (a contents entry, type a third larger than the text) or two
weak ones make a heading; one clear sign against (it reads like a sentence, a caption, a list item) needs a strong sign
to be outweighed.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ocr2_core.blocks import BlockLabel
from ocr2_core.geometry import NORM_MAX
from structure_recovery.candidates import CAPTION, HEADING_LABELS, Candidate, Evidence
from structure_recovery.elements import Piece, has_cjk
from structure_recovery.numbering import NumberKind
from structure_recovery.vocabulary import ADMONITIONS, CONTENTS_TITLES, letters_of

# A candidate is a heading from this sum of weights on.
THRESHOLD = 2.0

_BULLET = re.compile(r"^[•·∙●▪■◦‣\-–—*+o]\s")
_TERMINAL = (".", ";", ",", "。", "；", "，", "、", "…")
_ALL_CAPS = re.compile(r"^[^a-zà-ÿа-я]*$")


def weigh_alone(candidate: Candidate, before: Piece | None, after: Piece | None, bold_body: bool) -> list[Evidence]:
    """Evidence from the candidate itself, its neighbours, the contents and the outline."""
    evidence: list[Evidence] = []

    def add(name: str, weight: float, detail: str = "") -> None:
        evidence.append(Evidence(name, round(weight, 2), detail))

    first, last, text = candidate.pieces[0], candidate.pieces[-1], candidate.text
    numbering = candidate.numbering
    if any(piece.label in HEADING_LABELS for piece in candidate.pieces):
        add("engine label", 1.6, str(first.label))
    if first.label is BlockLabel.LIST_ITEM or _BULLET.match(text):
        add("list item", -1.5)
    grown = math.log(candidate.size_ratio)
    if not candidate.is_size_measured:
        # an estimate from the box is good to 20 %: what lies within says nothing
        grown = math.copysign(max(abs(grown) - 0.18, 0.0), grown)
    if grown > 0.04:
        add("larger type", min(8 * grown, 2.2), f"{candidate.size_ratio:.2f} × body")
    elif candidate.is_size_measured and grown > -0.04 and candidate.is_bold is False:
        add("set like the text", -0.4)
    elif grown < -0.12 and not candidate.is_bold:
        add("smaller type", -0.8, f"{candidate.size_ratio:.2f} × body")
    if candidate.is_bold and not bold_body:
        add("bold", 1.3)
    if last.is_monospace and numbering is None and last.label not in HEADING_LABELS:
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
    _add_space(evidence, candidate, before, after)
    return evidence


def _add_space(evidence: list[Evidence], candidate: Candidate, before: Piece | None, after: Piece | None) -> None:
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


def weigh_runs(candidates: Sequence[Candidate], following: Mapping[int, Piece]) -> None:
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


def weigh_absence(candidates: Sequence[Candidate], first_contents_page: int) -> None:
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
        lone_number = candidate.numbering is not None and candidate.numbering.is_lone_number
        may_miss = not candidate.is_named or (lone_number and candidate.entry is None)
        if may_miss and candidate.page_index > first_contents_page:
            candidate.evidence.append(Evidence("not in the contents", -0.8, f"{listed} of {len(sure)} headings are"))


def weigh_margins(candidates: Sequence[Candidate], body: Sequence[Piece]) -> None:
    """A heading stands at an edge or in the middle of a column; a stamp or a label in a drawing stands anywhere."""
    by_page: dict[int, list[Piece]] = defaultdict(list)
    for piece in body:
        if len(piece.text) > 20:
            by_page[piece.page_index].append(piece)
    for candidate in candidates:
        others = [piece.bbox_norm for piece in by_page[candidate.page_index] if piece not in candidate.pieces]
        if candidate.is_named or len(others) < 3:
            continue
        left, right = candidate.pieces[0].bbox_norm[0], candidate.pieces[-1].bbox_norm[2]
        first, last = min(box[0] for box in others), max(box[2] for box in others)
        aligned = (
            any(abs(left - box[0]) < 12 for box in others)
            or abs(right - last) < 15
            or abs((left + right) - (first + last)) / 2 < 20
        )
        if not aligned:
            candidate.evidence.append(Evidence("off the margins", -1.2))


def weigh_labels(candidates: Sequence[Candidate]) -> None:
    """Where the engine labels nearly all headings that are sure without its label, a missing label means something."""
    sure = [c for c in candidates if c.is_named and c.score - _weight_of(c, "engine label") >= THRESHOLD]
    labelled = sum(_weight_of(candidate, "engine label") > 0 for candidate in sure)
    if len(sure) < 5 or labelled < 0.85 * len(sure):
        return
    for candidate in candidates:
        if not _weight_of(candidate, "engine label") and not candidate.is_named:
            candidate.evidence.append(Evidence("no engine label", -0.8, f"{labelled} of {len(sure)} headings have one"))


def weigh_sequence(candidates: Sequence[Candidate]) -> None:
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
        if numbering.is_lone_number and candidate.score < 1.0:
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
            factor = 0.7 if numbering.is_lone_number else 1.0
            candidate.evidence.append(Evidence("number in sequence", round(weight * factor, 2), known))


def weigh_style(candidates: Sequence[Candidate]) -> None:
    """A style (size, weight, label) that mostly sets headings speaks for its members, one that rarely does against."""
    styles: dict[tuple[int, bool | None, bool], list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        key = (
            round(math.log(candidate.size_ratio) / 0.06),
            candidate.is_bold,
            candidate.pieces[-1].label in HEADING_LABELS,
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


def _weight_of(candidate: Candidate, name: str) -> float:
    return sum(evidence.weight for evidence in candidate.evidence if evidence.name == name)
