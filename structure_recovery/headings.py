"""Find the headings: every short piece is weighed by all evidence in the whole document, none of it a gate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ocr2_core.blocks import BlockLabel, OutlineEntry
from structure_recovery.candidates import Candidate, Evidence, find_candidates
from structure_recovery.contents import Contents, ContentsEntry, match_entries
from structure_recovery.elements import Piece
from structure_recovery.evidence import (
    THRESHOLD,
    weigh_absence,
    weigh_alone,
    weigh_labels,
    weigh_margins,
    weigh_runs,
    weigh_sequence,
    weigh_style,
)
from structure_recovery.furniture import PageLabel
from structure_recovery.numbering import NumberKind


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
    candidates = find_candidates(body, body_pt)
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
        candidate.evidence = weigh_alone(candidate, before, after, bold_body)
        if not candidate.is_named and candidate.page_index == title_page_index:
            candidate.evidence.append(Evidence("on the title page", -3.0))
        elif not candidate.is_named and candidate.page_index < first_contents_page:
            candidate.evidence.append(Evidence("before the contents", -1.0))
    weigh_absence(candidates, first_contents_page)
    weigh_margins(candidates, body)
    weigh_runs(candidates, following)
    weigh_labels(candidates)
    weigh_sequence(candidates)
    weigh_style(candidates)
    headings = [candidate for candidate in candidates if candidate.score >= THRESHOLD]
    _drop_chance_numbers(headings)
    return headings


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
