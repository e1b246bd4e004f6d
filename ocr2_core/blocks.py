"""What a reading engine returns: the typed blocks of one page, with boxes, text and confidence."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ocr2_core.geometry import BBoxNorm, to_upright_page


class BlockLabel(StrEnum):
    """Layout labels; they follow the OCR2 output format and docling-core."""

    TITLE = "title"
    SECTION_HEADER = "section_header"
    TEXT = "text"
    LIST_ITEM = "list_item"
    TABLE = "table"
    CAPTION = "caption"
    PICTURE = "picture"
    FORMULA = "formula"
    CODE = "code"
    FOOTNOTE = "footnote"
    PAGE_HEADER = "page_header"
    PAGE_FOOTER = "page_footer"
    TOC_ENTRY = "toc_entry"


class TextLine(BaseModel):
    """One printed line: evidence for structure recovery (indents, heights, weight), absent in engines that give none.

    `font_height_norm` is the type size in thousandths of the page height (the same on a page for lines set in one
    size, whatever letters they hold); `is_bold` is None where the engine cannot tell.
    """

    model_config = ConfigDict(frozen=True)

    bbox_norm: BBoxNorm
    text: str
    confidence: float | None = Field(default=None, ge=0, le=1)
    font_height_norm: float | None = Field(default=None, gt=0)
    is_bold: bool | None = None
    is_monospace: bool | None = None


class Block(BaseModel):
    """One layout element of a page.

    `bbox_norm` is (x0, y0, x1, y1) in 0..999 of the *reading frame*: the page turned upright and deskewed, origin top
    left. `text` is plain text with single spaces (code keeps its line breaks), HTML for a table (`<table>…</table>`)
    and LaTeX for a formula.
    """

    label: BlockLabel
    bbox_norm: BBoxNorm
    text: str = ""
    confidence: float | None = Field(default=None, ge=0, le=1)
    lines: list[TextLine] = Field(default_factory=list)


class PageBlocks(BaseModel):
    """All blocks of one page in the engine's order, and how the page was turned to be read.

    `width_pt`, `height_pt`: size of the upright page in points (1/72 inch). `rotation_degrees`: clockwise turn (0, 90,
    180, 270) that was applied to the page as stored to make it upright. `skew_degrees`: the remaining clockwise tilt
    of the text that was then removed; boxes are in the frame after that.
    """

    page_index: int = Field(ge=0)
    width_pt: float = Field(gt=0)
    height_pt: float = Field(gt=0)
    rotation_degrees: int = 0
    skew_degrees: float = 0.0
    page_label: str | None = None
    blocks: list[Block] = Field(default_factory=list)

    @model_validator(mode="after")
    def _rotation_is_a_quarter_turn(self) -> PageBlocks:
        if self.rotation_degrees not in (0, 90, 180, 270):
            raise ValueError(f"rotation_degrees must be 0, 90, 180 or 270, not {self.rotation_degrees}")
        return self

    @property
    def page_number(self) -> int:
        """1-based number of the page in its file."""
        return self.page_index + 1

    def on_upright_page(self, bbox_norm: BBoxNorm) -> BBoxNorm:
        """The same box on the upright page as a person sees it, the deskewing undone (box around the turned box)."""
        return to_upright_page(bbox_norm, self.skew_degrees, self.width_pt / self.height_pt)


class OutlineEntry(BaseModel):
    """One bookmark of a PDF's own outline: `level` from 1, `page_index` 0-based or None where it leads nowhere."""

    level: int = Field(ge=1)
    title: str
    page_index: int | None = None
