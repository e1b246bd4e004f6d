"""What the model wrote for a page → layout blocks: `<|det|>label [x0, y0, x1, y1]<|/det|>text`.

Tables are HTML, formulas LaTeX. The grammar is the one transformers' processor of this model parses; the older
`<|ref|>label<|/ref|><|det|>[[…]]<|/det|>` is read too. Damaged tags never cost text: what cannot be placed becomes a
text block, and `notes` say what was mended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ocr2_core.blocks import Block, BlockLabel
from ocr2_core.geometry import NORM_MAX, BBoxNorm, clip_bbox, union
from ocr2_core.ocr2.markup_text import as_latex, as_plain_text, split_table, strip_control_tokens

PAGE_MARKER = "<PAGE>"
WHOLE_PAGE: BBoxNorm = (0.0, 0.0, NORM_MAX, NORM_MAX)

# Region types that the model family writes → ours. `title` is any heading in its output: which one is the document's is
# for structure recovery to say. Types of its relatives (DeepSeek-OCR, PaddleOCR) are there because fine-tunes use them.
LABELS: dict[str, BlockLabel] = {
    **dict.fromkeys(("doc_title", "document_title"), BlockLabel.TITLE),
    **dict.fromkeys(
        ("title", "subtitle", "sub_title", "section_header", "heading", "paragraph_title"), BlockLabel.SECTION_HEADER
    ),
    **dict.fromkeys(
        ("text", "paragraph", "abstract", "aside_text", "ref_text", "reference", "phonetic", "handwriting"),
        BlockLabel.TEXT,
    ),
    **dict.fromkeys(("list", "list_item"), BlockLabel.LIST_ITEM),
    **dict.fromkeys(("toc", "toc_entry", "index", "content", "catalogue"), BlockLabel.TOC_ENTRY),
    "table": BlockLabel.TABLE,
    **dict.fromkeys(
        (
            "caption",
            "image_caption",
            "figure_caption",
            "table_caption",
            "chart_caption",
            "code_caption",
            "figure_title",
        ),
        BlockLabel.CAPTION,
    ),
    **dict.fromkeys(("image", "figure", "picture", "chart", "seal", "stamp", "logo"), BlockLabel.PICTURE),
    **dict.fromkeys(("equation", "formula", "equation_block", "interline_equation"), BlockLabel.FORMULA),
    **dict.fromkeys(("code", "code_block", "algorithm"), BlockLabel.CODE),
    **dict.fromkeys(
        ("footnote", "page_footnote", "table_footnote", "image_footnote", "figure_footnote"), BlockLabel.FOOTNOTE
    ),
    **dict.fromkeys(("header", "page_header"), BlockLabel.PAGE_HEADER),
    **dict.fromkeys(("footer", "page_footer", "page_number"), BlockLabel.PAGE_FOOTER),
}
_LINE_BY_LINE = (BlockLabel.LIST_ITEM, BlockLabel.TOC_ENTRY)

_REF = r"(?:<\|ref\|>(?P<ref>[^<\n]{0,80})(?:<\|/ref\|>)?\s*)?"
_LABEL = r"(?:(?P<label>[A-Za-z][\w \-]{0,40}?)[ \t]*(?=\[|<\|/det\|>))?"
_BOX = r"(?P<box>\[(?:[ \t]*\[[\d \t.,+\-]*\][ \t]*,?)+[ \t]*\]?|\[[\d \t.,;+\-]*\]?)?"
# every part after the opening tag may be missing
_TAG = re.compile(_REF + r"<\|det\|>[ \t]*" + _LABEL + _BOX + r"[ \t]*(?P<end><\|/det\|>)?")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """Blocks in the order they were written, and what had to be mended, each said once."""

    blocks: list[Block] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def parse_page(text: str) -> ParsedPage:
    """Parse what the model wrote for one page; `text` may open with its page marker. Never raises."""
    page = ParsedPage()
    text = strip_control_tokens(text).replace(PAGE_MARKER, "\n")
    tags = list(_TAG.finditer(text))
    before = text[: tags[0].start()] if tags else text
    if before.strip():
        _note(page, "text outside any region was kept as a text block")
        page.blocks.extend(_blocks(BlockLabel.TEXT, WHOLE_PAGE, before, page))
    ends = [*(tag.start() for tag in tags[1:]), len(text)]
    for tag, end in zip(tags, ends, strict=False):
        content = text[tag.end() : end]
        if tag["label"] and not tag["box"] and _name(tag) not in LABELS:
            # no region type and no box: text that lost its way into a tag
            content = f"{tag['label']} {content}"
        label, box = _label(tag, page), _box(tag, page)
        if tag["end"] is None:
            _note(page, "a region tag was not closed")
        page.blocks.extend(_blocks(label, box, content, page))
    return page


def _note(page: ParsedPage, note: str) -> None:
    if note not in page.notes:
        page.notes.append(note)


def _name(tag: re.Match[str]) -> str:
    return (tag["label"] or tag["ref"] or "").strip().lower().replace(" ", "_").replace("-", "_")


def _label(tag: re.Match[str], page: ParsedPage) -> BlockLabel:
    name = _name(tag)
    if not name:
        _note(page, "a region had no label and was taken for text")
        return BlockLabel.TEXT
    label = LABELS.get(name)
    if label is None:
        _note(page, f"the region type {name!r} is not known and was taken for text")
        return BlockLabel.TEXT
    return label


def _box(tag: re.Match[str], page: ParsedPage) -> BBoxNorm:
    numbers = [float(number) for number in _NUMBER.findall(tag["box"] or "")]
    boxes = [numbers[start : start + 4] for start in range(0, len(numbers) - 3, 4)]
    if not boxes or len(numbers) % 4:
        _note(page, "a region's box was missing or incomplete")
    if not boxes:
        return WHOLE_PAGE
    if any(x0 > x1 or y0 > y1 for x0, y0, x1, y1 in boxes):
        _note(page, "a box with swapped corners was turned round")
    if any(not 0 <= number <= NORM_MAX for box in boxes for number in box):
        _note(page, "a box that reached beyond the page was clipped")
    return union([clip_bbox((x0, y0, x1, y1)) for x0, y0, x1, y1 in boxes])


def _blocks(label: BlockLabel, box: BBoxNorm, content: str, page: ParsedPage) -> Iterator[Block]:
    if "<table" in content or label is BlockLabel.TABLE:
        before, table, after = split_table(content)
        if table.is_mended:
            _note(page, "a table was cut off and its open cells were closed")
        around = BlockLabel.TEXT if label is BlockLabel.TABLE else label
        if before:
            yield Block(label=around, bbox_norm=box, text=before)
        if table.html:
            yield Block(label=BlockLabel.TABLE, bbox_norm=box, text=table.html)
        elif not before:
            yield Block(label=BlockLabel.TABLE, bbox_norm=box)
        else:
            _note(page, "a table region held plain text")
        if after:
            yield from _blocks(around, box, after, page)
        return
    if label in _LINE_BY_LINE:
        yield from _line_blocks(label, box, content)
        return
    text = as_plain_text(content, keep_lines=label is BlockLabel.CODE)
    if label is BlockLabel.FORMULA:
        text = as_latex(text)
    if label is BlockLabel.SECTION_HEADER or label is BlockLabel.TITLE:
        text = re.sub(r"^#{1,6} +", "", text)
    yield Block(label=label, bbox_norm=box, text=text)


def _line_blocks(label: BlockLabel, box: BBoxNorm, content: str) -> Iterator[Block]:
    """One block an item, where the model writes a whole list into one region: each gets its share of the height."""
    lines = [line for line in (as_plain_text(line) for line in content.splitlines()) if line] or [""]
    x0, y0, x1, y1 = box
    height = (y1 - y0) / len(lines)
    for number, line in enumerate(lines):
        top = y0 + number * height
        yield Block(label=label, bbox_norm=clip_bbox((x0, top, x1, top + height)), text=line)


class PageSplitter:
    """Cuts a stream of characters at page markers; a marker may come in pieces."""

    def __init__(self) -> None:
        self._held = ""
        self._has_marker = False

    def feed(self, piece: str) -> list[str]:
        """The pages that `piece` completed. What stands before the first marker is a page only if it is not blank."""
        *complete, self._held = (self._held + piece).split(PAGE_MARKER)
        if complete and not self._has_marker:
            self._has_marker = True
            if not complete[0].strip():
                complete = complete[1:]
        return complete

    def finish(self) -> list[str]:
        """The page that the end of the stream completed."""
        last, self._held = self._held, ""
        return [last] if self._has_marker or last.strip() else []
