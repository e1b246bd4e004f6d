"""What structure recovery is measured beside, each as the scorer's prediction (`benchmarks/corpus/README.md`).

`numbering`: blocks that begin with a number such as 1, 1.2 or Chapter 3, the level its depth. `labels`: the blocks that
the layout detector calls titles, levels by number, else by rank of type size over the document. Both keep the engine's
order. `pymupdf4llm`: its Markdown of the PDF, headings by their `#`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ocr2_core.blocks import Block, BlockLabel, PageBlocks

Prediction = dict[str, Any]

_NUMBER = re.compile(
    r"^(?:(?:chapter|kapitel|chapitre|cap[ií]tulo|appendix|anhang|annexe|ap[ée]ndice|part|teil)\s+)?"
    r"(?P<number>[0-9]{1,3}(?:\.[0-9]{1,3})*|[A-Z](?:\.[0-9]{1,3})+)[.:)]?\s+\D",
    re.IGNORECASE,
)
_FURNITURE = (BlockLabel.PAGE_HEADER, BlockLabel.PAGE_FOOTER)
_MAX_CHARACTERS = 120


def numbering(pages: Sequence[PageBlocks]) -> Prediction:
    """Headings by number alone."""
    headings = []
    for page, block in _blocks(pages):
        match = _NUMBER.match(block.text)
        is_short = len(block.text) <= _MAX_CHARACTERS and block.label is not BlockLabel.TOC_ENTRY
        if match is not None and is_short:
            headings.append(_heading(page, block, _depth(match["number"])))
    return _prediction(pages, headings)


def labels(pages: Sequence[PageBlocks]) -> Prediction:
    """Headings by the engine's label, levels by number and height."""
    titles = [(page, block) for page, block in _blocks(pages) if block.label in (BlockLabel.SECTION_HEADER, "title")]
    heights = sorted({_height(page, block) for page, block in titles}, reverse=True)
    ranks: dict[float, int] = {}
    for height in heights:
        near = next((known for known in ranks if known / height < 1.12), None)
        ranks[height] = len(set(ranks.values())) + 1 if near is None else ranks[near]
    headings = []
    for page, block in titles:
        match = _NUMBER.match(block.text)
        level = _depth(match["number"]) if match else min(ranks[_height(page, block)], 6)
        headings.append(_heading(page, block, level))
    return _prediction(pages, headings)


def pymupdf4llm(pdf: Path, page_numbers: Sequence[int]) -> Prediction:
    """What pymupdf4llm makes of the file's pages."""
    import pymupdf4llm as peer

    chunks = peer.to_markdown(str(pdf), pages=[number - 1 for number in page_numbers], page_chunks=True)
    pages, headings = [], []
    for number, chunk in zip(page_numbers, chunks, strict=True):
        lines = str(chunk["text"]).splitlines()
        for line in lines:
            if match := re.match(r"^(#{1,6})\s+(?P<title>.+)$", line):
                title = re.sub(r"[*_`]", "", match["title"]).strip()
                headings.append({"level": len(match[1]), "title": title, "page": number})
        paragraphs = [re.sub(r"[*_`#]", "", part).strip() for part in "\n".join(lines).split("\n\n")]
        pages.append({"n": number, "text": "\n".join(paragraphs), "paragraphs": paragraphs})
    return {"pages": pages, "headings": headings}


BLOCK_PEERS: dict[str, Callable[[Sequence[PageBlocks]], Prediction]] = {"numbering": numbering, "labels": labels}


def _blocks(pages: Sequence[PageBlocks]) -> list[tuple[PageBlocks, Block]]:
    return [(page, block) for page in pages for block in page.blocks if block.label not in _FURNITURE]


def _heading(page: PageBlocks, block: Block, level: int) -> dict[str, Any]:
    return {"level": level, "title": block.text, "page": page.page_number}


def _depth(number: str) -> int:
    return min(number.count(".") + 1, 6)


def _height(page: PageBlocks, block: Block) -> float:
    """Type size in points, to the half; the box's height where the engine gives no lines."""
    sizes = [line.font_height_norm for line in block.lines if line.font_height_norm]
    norm = statistics.median(sizes) if sizes else block.bbox_norm[3] - block.bbox_norm[1]
    return max(round(norm / 999 * page.height_pt * 2) / 2, 0.5)


def _prediction(pages: Sequence[PageBlocks], headings: list[dict[str, Any]]) -> Prediction:
    return {
        "pages": [
            {
                "n": page.page_number,
                "text": "\n".join(block.text for block in page.blocks),
                "paragraphs": [block.text for block in page.blocks if block.label not in _FURNITURE],
            }
            for page in pages
        ],
        "headings": headings,
    }
