"""What was recovered and why: one report a document, as JSON beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from pydantic import BaseModel, Field

from structure_recovery.candidates import Candidate
from structure_recovery.contents import Contents
from structure_recovery.corrections import Corrected
from structure_recovery.evidence import THRESHOLD
from structure_recovery.furniture import Furniture
from structure_recovery.joining import Joined
from structure_recovery.levels import Levels
from structure_recovery.numbering import to_roman
from structure_recovery.references import Reference


class EvidenceReport(BaseModel):
    """One reason why a block is a heading: weights add up; negative ones spoke against it."""

    name: str
    weight: float
    detail: str = ""


class HeadingReport(BaseModel):
    """One heading: its place, its evidence, and the level each source of evidence spoke for."""

    text: str
    level: int
    page_number: int
    confidence: float
    evidence: list[EvidenceReport]
    level_votes: dict[str, int]


class ContentsReport(BaseModel):
    """The printed contents: how many of its entries whose page is in the file were found as headings."""

    page_numbers: list[int] = Field(default_factory=list)
    entry_count: int = 0
    matched_count: int = 0
    match_rate: float | None = None


class ReferenceReport(BaseModel):
    """Where the text points to (section, figure, table, page, footnote), and what stands there."""

    kind: str
    page_number: int
    text: str
    target: str
    target_page_number: int


class StructureReport(BaseModel):
    """All decisions of the stage for one document.

    `confidence` is the mean over headings of how far the evidence lies beyond the threshold and how far the sources of
    levels agree, 0..1 and uncalibrated; None without headings. `level_cost` is the optimisation's cost a heading: 0
    when all sources agree. `lost_reference_count`: references to what is not in the document. `unmatched_corrections`:
    corrections by hand for whose box no block was found.
    """

    page_count: int
    title: str | None
    headings: list[HeadingReport]
    heading_counts: dict[int, int]
    level_cost: float
    contents: ContentsReport
    page_labels: dict[int, str]
    furniture_count: int
    reordered_count: int
    joined_paragraph_count: int
    joined_table_count: int
    repeated_header_count: int
    confidence: float | None
    applied_correction_count: int = 0
    unmatched_corrections: list[str] = Field(default_factory=list)
    note_count: int = 0
    references: list[ReferenceReport] = Field(default_factory=list)
    lost_reference_count: int = 0


def build_report(
    *,
    page_count: int,
    title: str | None,
    headings: Sequence[Candidate],
    levels: Levels,
    contents: Contents,
    furniture: Furniture,
    joined: Joined,
    reordered_count: int,
    corrected: Corrected,
    note_count: int,
    references: Sequence[Reference],
    lost_reference_count: int,
) -> StructureReport:
    """Sum up the results of all steps."""
    rows = [
        HeadingReport(
            text=heading.text,
            level=level,
            page_number=heading.page_index + 1,
            confidence=_confidence(heading, level, votes),
            evidence=[EvidenceReport(name=e.name, weight=e.weight, detail=e.detail) for e in heading.evidence],
            level_votes=votes,
        )
        for heading, level, votes in zip(headings, levels.levels, levels.votes, strict=True)
    ]
    return StructureReport(
        page_count=page_count,
        title=title,
        headings=rows,
        heading_counts=dict(sorted(Counter(levels.levels).items())),
        level_cost=round(levels.cost / len(headings), 3) if headings else 0.0,
        contents=_contents_report(contents, headings),
        page_labels={
            page_index + 1: to_roman(label.value) if label.is_roman else str(label.value)
            for page_index, label in sorted(furniture.page_labels.items())
        },
        furniture_count=len(furniture.pieces),
        reordered_count=reordered_count,
        joined_paragraph_count=joined.paragraph_joins,
        joined_table_count=joined.table_joins,
        repeated_header_count=len(joined.repeated_headers),
        confidence=round(sum(row.confidence for row in rows) / len(rows), 3) if rows else None,
        applied_correction_count=len(corrected.by_piece),
        unmatched_corrections=[str(correction) for correction in corrected.unmatched],
        note_count=note_count,
        references=[ReferenceReport(**asdict(reference)) for reference in references],
        lost_reference_count=lost_reference_count,
    )


def _confidence(heading: Candidate, level: int, votes: dict[str, int]) -> float:
    # A heading that nothing but its looks speaks for is never quite sure, however large it is set.
    sure = min(max((heading.score - THRESHOLD) / 3.0, 0.0), 1.0 if heading.is_named else 0.6)
    agreement = sum(vote == level for vote in votes.values()) / len(votes) if votes else 0.0
    return round(0.5 * (1 + sure) * (0.6 + 0.4 * agreement), 3)


def _contents_report(contents: Contents, headings: Sequence[Candidate]) -> ContentsReport:
    entries = contents.section_entries
    matched = sum(heading.entry is not None for heading in headings)
    return ContentsReport(
        page_numbers=[page_index + 1 for page_index in contents.page_indexes],
        entry_count=len(entries),
        matched_count=matched,
        match_rate=round(matched / len(entries), 3) if entries else None,
    )
