"""Blocks of all pages in, one document out: the steps of structure recovery, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ocr2_core.blocks import BlockLabel, OutlineEntry, PageBlocks
from structure_recovery.candidates import Candidate
from structure_recovery.captions import tie_captions
from structure_recovery.contents import Contents, find_contents
from structure_recovery.corrections import Correction, apply_corrections, corrected_headings, in_corrected_order
from structure_recovery.document import Parts, build_document
from structure_recovery.elements import Piece, body_size_pt, pieces_of
from structure_recovery.furniture import find_furniture
from structure_recovery.headings import find_headings
from structure_recovery.joining import Element, Joined, element_of, element_of_many, join_elements
from structure_recovery.levels import Levels, assign_levels
from structure_recovery.lists import nest_lists
from structure_recovery.notes import mark_notes
from structure_recovery.reading_order import order_page
from structure_recovery.references import find_references
from structure_recovery.report import StructureReport, build_report
from structure_recovery.title import find_title

if TYPE_CHECKING:
    from docling_core.types.doc import DoclingDocument

# Raise it with every change that can change a result: artifacts of an older version are then made anew.
CODE_VERSION = 4


@dataclass(frozen=True, slots=True)
class RecoveryOptions:
    """What can be switched off, to compare or where a document misleads a step."""

    use_contents: bool = True
    use_outline: bool = True
    join_across_breaks: bool = True


@dataclass(frozen=True)
class RecoveredDocument:
    """The document and the report that explains it."""

    document: DoclingDocument
    report: StructureReport


def identity(options: RecoveryOptions | None = None) -> dict[str, str | int | float | bool]:
    """Everything the result depends on besides the blocks; hashed into the stage fingerprint."""
    options = options or RecoveryOptions()
    return {
        "code_version": CODE_VERSION,
        "use_contents": options.use_contents,
        "use_outline": options.use_outline,
        "join_across_breaks": options.join_across_breaks,
    }


def recover(
    pages: Sequence[PageBlocks],
    *,
    name: str,
    outline: Sequence[OutlineEntry] = (),
    options: RecoveryOptions | None = None,
    corrections: Sequence[Correction] = (),
) -> RecoveredDocument:
    """Recover the structure of one document.

    `pages` are all its pages (any order, failed ones may be missing); `outline` the PDF's own bookmarks, if any;
    `corrections` what people said of single blocks, which has the last word. The result depends on the blocks' places
    and texts, not on the engine's order of blocks. Every text of every block that no person replaced is in the
    document: in the body, or in the furniture layer. Raises ValueError when a page comes twice.
    """
    options = options or RecoveryOptions()
    pages = _in_order(pages)
    # One list a page of the file, so that a page that failed leaves a gap and moves no other.
    by_page: list[list[Piece]] = [[] for _ in range(pages[-1].page_index + 1 if pages else 0)]
    for page in pages:
        by_page[page.page_index] = order_page(pieces_of(page))
    body_pt = body_size_pt(piece for pieces in by_page for piece in pieces)
    corrected = apply_corrections(pages, by_page, corrections)

    furniture = find_furniture(by_page, body_pt)
    furniture = replace(furniture, pieces=furniture.pieces - corrected.body | corrected.furniture)
    by_page = [[piece for piece in pieces if piece not in furniture.pieces] for pieces in by_page]
    contents = find_contents(by_page) if options.use_contents else Contents()
    contents = replace(contents, pieces=contents.pieces - corrected.body)
    # Headers and contents gone, columns show more clearly: order what is left anew.
    by_page = [order_page([piece for piece in pieces if piece not in contents.pieces]) for pieces in by_page]
    by_page = [in_corrected_order(pieces, corrected) for pieces in by_page]
    body = [piece for pieces in by_page for piece in pieces]

    title = [piece for piece in find_title(body, body_pt, contents) if piece not in corrected.body]
    headings = find_headings(
        [piece for piece in body if piece not in title],
        body_pt=body_pt,
        contents=contents,
        page_labels=furniture.page_labels,
        outline=outline if options.use_outline else (),
        title_page_index=title[0].page_index if title else None,
    )
    headings = corrected_headings(headings, corrected, body, body_pt)
    levels = assign_levels(headings)
    given = [corrected.level_of(heading.pieces) for heading in headings]
    levels = replace(levels, levels=[by_hand or level for by_hand, level in zip(given, levels.levels, strict=True)])
    elements = _elements(body, title, headings, levels)
    joined = join_elements(elements) if options.join_across_breaks else Joined(elements, 0, 0, [])
    kickers = [piece for heading in headings for piece in heading.kicker]
    aside = [*_furniture_elements([*furniture.pieces, *kickers]), *joined.repeated_headers]
    body_elements = tie_captions(joined.elements)
    nest_lists(body_elements)
    note_count = mark_notes(body_elements)
    references, lost_reference_count = find_references(body_elements, headings, furniture.page_labels)
    parts = Parts(body_elements, aside, contents)
    report = build_report(
        page_count=len(pages),
        title=" ".join(piece.text for piece in title) or None,
        headings=headings,
        levels=levels,
        contents=contents,
        furniture=furniture,
        joined=joined,
        reordered_count=_reordered_count(pages, body),
        corrected=corrected,
        note_count=note_count,
        references=references,
        lost_reference_count=lost_reference_count,
    )
    return RecoveredDocument(build_document(pages, parts, name), report)


def _in_order(pages: Sequence[PageBlocks]) -> list[PageBlocks]:
    ordered = sorted(pages, key=lambda page: page.page_index)
    for before, after in pairwise(ordered):
        if before.page_index == after.page_index:
            raise ValueError(f"page {before.page_number} comes twice; give each page once")
    return ordered


def _elements(
    body: Sequence[Piece], title: Sequence[Piece], headings: Sequence[Candidate], levels: Levels
) -> list[Element]:
    """The body as elements: the title and each heading one element, every other piece one of its own."""
    starts: dict[Piece, Element] = {}
    inside: set[Piece] = set()
    if title:
        starts[title[0]] = element_of_many(title, BlockLabel.TITLE)
        inside.update(title[1:])
    for heading, level in zip(headings, levels.levels, strict=True):
        element = element_of_many(heading.pieces, BlockLabel.SECTION_HEADER)
        if added := len(heading.text) - len(element.text):
            # a space put behind the number, in the first piece
            element.spans = [(start + added * (i > 0), end + added) for i, (start, end) in enumerate(element.spans)]
            element.text = heading.text
        element.level = level
        starts[heading.pieces[0]] = element
        inside.update([*heading.kicker, *heading.pieces[1:]])
    return [starts.get(piece) or _plain_element(piece) for piece in body if piece not in inside]


def _plain_element(piece: Piece) -> Element:
    """A piece that is no heading: what the engine called one, or a header, is text of the body after all."""
    not_text = (BlockLabel.TITLE, BlockLabel.SECTION_HEADER, BlockLabel.PAGE_HEADER, BlockLabel.PAGE_FOOTER)
    label = BlockLabel.TEXT if piece.label in (*not_text, BlockLabel.TOC_ENTRY) else piece.label
    return element_of(piece, label)


def _furniture_elements(pieces: Iterable[Piece]) -> list[Element]:
    ordered = sorted(pieces, key=lambda piece: (piece.page_index, piece.bbox_norm, piece.text))
    return [element_of(piece) for piece in ordered]


def _reordered_count(pages: Sequence[PageBlocks], body: Sequence[Piece]) -> int:
    """How many blocks do not follow the block they followed in the engine's order."""
    position: dict[tuple[int, tuple[float, float, float, float]], int] = {}
    for page in pages:
        for number, block in enumerate(page.blocks):
            position.setdefault((page.page_index, block.bbox_norm), number)
    moved = 0
    for before, after in pairwise(body):
        first = position.get((before.page_index, before.bbox_norm))
        second = position.get((after.page_index, after.bbox_norm))
        if before.page_index == after.page_index and first is not None and second is not None:
            moved += second < first
    return moved
