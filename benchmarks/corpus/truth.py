"""Ground truth of a born-digital manual: text blocks in the author's order, and the PDF outline found on the page.

An outline entry counts only when its title is really printed on its page (or at the top of the next one): bookmarks
that lead to nothing a reader could see are listed as dropped, never as gold.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

PointBox = tuple[float, float, float, float]

# A title is accepted as printed from this similarity on; lower lets neighbouring headings stand in for one another.
MIN_TITLE_SIMILARITY = 0.86
HEADER_END, FOOTER_START = 0.085, 0.925
MAX_FURNITURE_CHARACTERS = 160

CHAPTER_WORDS = "chapter|kapitel|chapitre|cap[ií]tulo|appendix|anhang|annexe|part|teil|глава|приложение"
NUMBER_PREFIX = re.compile(
    rf"^\s*(?:(?:{CHAPTER_WORDS})\s+)?(?:[0-9]+(?:\.[0-9]+)*|[A-Z](?:\.[0-9]+)+|[IVXLC]+|[A-Z])[.):]?\s+", re.IGNORECASE
)
CONTENTS_LINE = re.compile(r"(?:\.\s*){3,}\s*(?:[0-9]+|[ivxlc]+)\s*$")


class TruthBlock(BaseModel):
    """One text block; `bbox` in points of the page, `furniture` for running headers, footers and page numbers."""

    bbox: PointBox
    text: str
    furniture: bool = False


class TruthPage(BaseModel):
    """`n` is the 1-based page number in the cut, `src_page` in the whole manual."""

    n: int
    src_page: int
    width: float
    height: float
    text: str
    blocks: list[TruthBlock]


class TruthHeading(BaseModel):
    """`level` is the depth in the tree of gold headings, `title` the bookmark, `printed` the words on the page."""

    level: int
    title: str
    printed: str
    page: int
    bbox: PointBox


class DroppedHeading(BaseModel):
    title: str
    page: int
    reason: str


class Truth(BaseModel):
    name: str
    package: str
    path: str
    lang: str
    split: str
    pages: list[TruthPage]
    outline: list[TruthHeading]
    dropped: list[DroppedHeading] = Field(default_factory=list)


class PrintedLine(BaseModel):
    text: str
    bbox: PointBox
    font_size_pt: float


class _Match(BaseModel):
    line: PrintedLine
    similarity: float
    score: float


def extract_truth(
    document: Any, page_numbers: Sequence[int], *, name: str, package: str, path: str, lang: str, split: str
) -> Truth:
    """Truth of the chosen pages (1-based, ascending) of an open PyMuPDF document."""
    pages = []
    for n, source_page in enumerate(page_numbers, start=1):
        page = document[source_page - 1]
        blocks = text_blocks(page)
        pages.append(
            TruthPage(
                n=n,
                src_page=source_page,
                width=round(page.rect.width, 1),
                height=round(page.rect.height, 1),
                text="\n".join(block.text for block in blocks),
                blocks=blocks,
            )
        )
    outline, dropped = printed_outline(document, page_numbers)
    return Truth(
        name=name, package=package, path=path, lang=lang, split=split, pages=pages, outline=outline, dropped=dropped
    )


def text_blocks(page: Any) -> list[TruthBlock]:
    """Text blocks in the order of the PDF's content, which TeX, FOP and Writer write in reading order."""
    import pymupdf

    height = page.rect.height
    blocks = []
    for x0, y0, x1, y1, raw, _number, kind in page.get_text("blocks", flags=pymupdf.TEXT_DEHYPHENATE):
        text = " ".join(raw.split())
        if kind != 0 or not text:
            continue
        in_margin = y1 < HEADER_END * height or y0 > FOOTER_START * height
        blocks.append(
            TruthBlock(
                bbox=_rounded((x0, y0, x1, y1)),
                text=text,
                furniture=in_margin and len(text) < MAX_FURNITURE_CHARACTERS,
            )
        )
    return blocks


def printed_lines(page: Any) -> list[PrintedLine]:
    """Lines from top to bottom; pieces on one baseline (a number set apart from its title) are one line."""
    import pymupdf

    flags = pymupdf.TEXTFLAGS_TEXT & ~pymupdf.TEXT_PRESERVE_LIGATURES
    pieces = []
    for block in page.get_text("dict", flags=flags)["blocks"]:
        for line in block.get("lines", []):
            text = "".join(span["text"] for span in line["spans"]).strip()
            if text:
                size = max(span["size"] for span in line["spans"])
                pieces.append(PrintedLine(text=text, bbox=line["bbox"], font_size_pt=size))
    pieces.sort(key=lambda piece: (round(piece.bbox[3] / 3), piece.bbox[0]))
    lines: list[PrintedLine] = []
    for piece in pieces:
        if lines and _same_baseline(lines[-1], piece):
            lines[-1] = _joined(lines[-1], piece)
        else:
            lines.append(piece)
    return lines


def printed_outline(document: Any, page_numbers: Sequence[int]) -> tuple[list[TruthHeading], list[DroppedHeading]]:
    """Outline entries of the chosen pages that are printed there, levels closed up; and those dropped, with reasons."""
    cut_page = {source: n for n, source in enumerate(page_numbers, start=1)}
    found: list[TruthHeading] = []
    dropped: list[DroppedHeading] = []
    taken: set[tuple[int, int]] = set()
    for raw_level, raw_title, source_page, destination in document.get_toc(simple=False):
        if source_page not in cut_page:
            continue
        title = " ".join(raw_title.split())
        hit = _find_on_pages(document, title, source_page, destination, cut_page)
        if hit is None:
            dropped.append(DroppedHeading(title=title, page=cut_page[source_page], reason="not printed on its page"))
            continue
        page, line = hit
        place = (page, round(line.bbox[1]))
        if place in taken:
            dropped.append(DroppedHeading(title=title, page=page, reason="same printed line as an earlier entry"))
            continue
        taken.add(place)
        found.append(TruthHeading(level=raw_level, title=title, printed=line.text, page=page, bbox=_rounded(line.bbox)))
    return close_level_gaps(found), dropped


def close_level_gaps(headings: Sequence[TruthHeading]) -> list[TruthHeading]:
    """The same headings, each with its depth in the tree they form as its level (1, 3, 3 becomes 1, 2, 2)."""
    ancestors: list[int] = []
    closed = []
    for heading in headings:
        while ancestors and ancestors[-1] >= heading.level:
            ancestors.pop()
        ancestors.append(heading.level)
        closed.append(heading.model_copy(update={"level": len(ancestors)}))
    return closed


def normalise_title(title: str) -> str:
    """Letters and digits only, case folded: what two spellings of one title share."""
    folded = unicodedata.normalize("NFKC", title).casefold().replace("\u00ad", "")
    return re.sub(r"[\W_]+", "", folded)


def title_similarity(first: str, second: str) -> float:
    """0..1; the better of comparing with and without numbering, since bookmarks often lack the printed number."""

    def ratio(left: str, right: str) -> float:
        return difflib.SequenceMatcher(None, left, right, autojunk=False).ratio()

    return max(ratio(normalise_title(first), normalise_title(second)), ratio(_bare(first), _bare(second)))


def _bare(title: str) -> str:
    return normalise_title(NUMBER_PREFIX.sub("", title)) or normalise_title(title)


def _find_on_pages(
    document: Any, title: str, source_page: int, destination: dict[str, Any], cut_page: dict[int, int]
) -> tuple[int, PrintedLine] | None:
    # A bookmark at the foot of a page often belongs to a heading that opens the next one.
    target = destination.get("to")
    expected_y = float(target.y) if target is not None and destination.get("kind") in (1, 4) else None
    for page_number, y in ((source_page, expected_y), (source_page + 1, None)):
        if page_number not in cut_page:
            continue
        page = document[page_number - 1]
        match = _best_match(printed_lines(page), title, y, page.rect.height)
        if match is not None and match.similarity >= MIN_TITLE_SIMILARITY:
            return cut_page[page_number], match.line
    return None


def _best_match(
    lines: Sequence[PrintedLine], title: str, expected_y: float | None, page_height: float
) -> _Match | None:
    """The run of one to three lines most like the title, outside the margins; nearness and type size break ties."""
    best: _Match | None = None
    longest = 3 * len(normalise_title(title)) + 25
    for start, first in enumerate(lines):
        if first.bbox[3] < 0.075 * page_height or first.bbox[1] > 0.94 * page_height:
            continue
        candidate: PrintedLine | None = None
        for line in lines[start : start + 3]:
            if candidate is not None and not _continues(first, candidate, line):
                break
            candidate = line if candidate is None else _joined(candidate, line)
            if CONTENTS_LINE.search(candidate.text):
                continue
            if len(normalise_title(candidate.text)) > longest:
                break
            similarity = title_similarity(candidate.text, title)
            distance = 0.0 if expected_y is None else min(1.0, abs(first.bbox[1] - expected_y) / page_height)
            score = similarity - 0.05 * distance + 0.02 * min(first.font_size_pt, 30.0) / 30.0
            if best is None or score > best.score:
                best = _Match(line=candidate, similarity=similarity, score=score)
    return best


def _continues(first: PrintedLine, above: PrintedLine, line: PrintedLine) -> bool:
    same_size = abs(line.font_size_pt - first.font_size_pt) <= 0.45 * line.font_size_pt
    return same_size and line.bbox[1] - above.bbox[3] <= 2.2 * line.font_size_pt


def _same_baseline(left: PrintedLine, right: PrintedLine) -> bool:
    return abs(left.bbox[3] - right.bbox[3]) < 3.5 and right.bbox[0] >= left.bbox[2] - 1


def _joined(first: PrintedLine, second: PrintedLine) -> PrintedLine:
    a, b = first.bbox, second.bbox
    return PrintedLine(
        text=f"{first.text} {second.text}",
        bbox=(min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])),
        font_size_pt=max(first.font_size_pt, second.font_size_pt),
    )


def _rounded(bbox: Sequence[float]) -> PointBox:
    x0, y0, x1, y1 = (round(float(value), 1) for value in bbox)
    return x0, y0, x1, y1
