"""Synthetic manual pages, drawn from a seed: a small square image, its layout blocks, and where each character lies.

A page is 256 x 256 px with up to eight lines of text: a heading, paragraphs of prose or invented words, rows of two
cells, a page number. Six fonts, several sizes, ink, paper, blur, noise and skew vary from page to page. The fonts are
those inside PyMuPDF, so pages are the same on every machine with the same versions.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import cv2
import numpy as np
import pymupdf
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ocr2_core.nano.prose import invented, prose

PAGE_SIDE_PX = 256
LINE_PITCH_PX = 32
LINE_SLOTS = PAGE_SIDE_PX // LINE_PITCH_PX

_BOLD_FONTS = {"helv": "hebo", "tiro": "tibo", "cour": "cobo"}
_SIDE_MARGIN_PX = (6, 18)
_TEXT_RIGHT_PX = PAGE_SIDE_PX - 6


@dataclass(frozen=True, slots=True)
class NanoBlock:
    """One layout element. `label` as the model writes it; `rows` holds a table's cells, `text` anything else.
    `bbox_px`: (x0, y0, x1, y1) in the image."""

    label: str
    bbox_px: tuple[float, float, float, float]
    text: str = ""
    rows: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Glyph:
    """A character and its centre in the image, in pixels."""

    character: str
    x_px: float
    y_px: float


@dataclass(frozen=True, slots=True)
class NanoPage:
    """`image`: (256, 256) uint8. `blocks` in reading order, each with the glyphs of its text, spaces included; a
    space between two lines lies behind the first. `glyphs[i][j]`: character j of block i (cells one after another)."""

    image: NDArray[np.uint8]
    blocks: tuple[NanoBlock, ...]
    glyphs: tuple[tuple[Glyph, ...], ...]


@dataclass(frozen=True, slots=True)
class PageStyle:
    """How hard pages are to read: fonts, sizes, the largest skew, blur, noise and shift of the lines; the shares of
    paragraphs with invented words and of documents with page numbers; the fewest lines of a page."""

    families: tuple[str, ...] = ("helv", "tiro", "cour")
    sizes_px: tuple[int, ...] = (24, 26, 28)
    least_lines: int = 2
    skew_degrees: float = 1.0
    blur_px: float = 1.2
    noise: float = 10.0
    jitter_px: float = 3.0
    invented_share: float = 0.4
    numbered_share: float = 0.5


def draw_document(seed: int, page_count: int, *, split: str, style: PageStyle | None = None) -> Iterator[NanoPage]:
    """The pages of one document, one at a time. Page numbers, where it has them, run on from a random first one."""
    style = style or PageStyle()
    rng = random.Random(f"{split} {seed}")
    is_numbered, first = rng.random() < style.numbered_share, rng.randint(1, 900)
    for index in range(page_count):
        yield draw_page(rng, split, style, first + index if is_numbered else None)


def draw_page(rng: random.Random, split: str, style: PageStyle, page_number: int | None = None) -> NanoPage:
    """One page."""
    sheet = _Sheet(rng, style)
    slots = LINE_SLOTS - (page_number is not None)
    used_slots = rng.randint(style.least_lines, slots)
    slot = 0
    family = rng.choice(style.families)
    size = rng.choice(style.sizes_px)
    if rng.random() < 0.7:
        heading = _font(_BOLD_FONTS[family], size + rng.choice((2, 4)))
        sheet.paragraph("title", heading, _words(rng, split, style, 4), slot, 1)
        slot += 1
    while slot < used_slots:
        left = used_slots - slot
        if left >= 2 and rng.random() < 0.3:
            count = rng.randint(2, min(3, left))
            sheet.table(_font(family, size), [_row(rng, split) for _ in range(count)], slot)
        else:
            count = rng.randint(1, min(4, left))
            sheet.paragraph("text", _font(family, size), _words(rng, split, style, 5 * count), slot, count)
        slot += count
        # Two paragraphs are told apart by a gap only.
        slot += sheet.blocks[-1].label == "text"
    if page_number is not None:
        sheet.page_number(_font(family, 24), str(page_number), LINE_SLOTS - 1)
    return sheet.finish()


def _words(rng: random.Random, split: str, style: PageStyle, count: int) -> list[str]:
    return invented(rng, count) if rng.random() < style.invented_share else prose(rng, split, count)


def _row(rng: random.Random, split: str) -> tuple[str, str]:
    name = prose(rng, split, 1)[0].strip(".,:;()'") if rng.random() < 0.5 else invented(rng, 1)[0]
    value = str(rng.randint(0, 9999)) if rng.random() < 0.6 else invented(rng, 1)[0]
    return name[:9] or "none", value[:6]


@lru_cache(maxsize=32)
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(io.BytesIO(pymupdf.Font(name).buffer), size, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=4096)
def _advance(font: ImageFont.FreeTypeFont, character: str) -> float:
    return font.getlength(character)


@dataclass
class _Sheet:
    rng: random.Random
    style: PageStyle
    blocks: list[NanoBlock] = field(default_factory=list)
    glyphs: list[list[Glyph]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng, style = self.rng, self.style
        self.paper = rng.randint(225, 255)
        self.ink = rng.randint(0, 70)
        self.image = Image.new("L", (PAGE_SIDE_PX, PAGE_SIDE_PX), self.paper)
        self.draw = ImageDraw.Draw(self.image)
        self.left = rng.uniform(*_SIDE_MARGIN_PX)
        self.top = rng.uniform(-style.jitter_px, style.jitter_px)

    def paragraph(self, label: str, font: ImageFont.FreeTypeFont, words: list[str], slot: int, line_count: int) -> None:
        """Words from the left margin, as many as fit into the lines."""
        lines: list[str] = []
        for word in words:
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and self.left + font.getlength(longer) <= _TEXT_RIGHT_PX:
                lines[-1] = longer
            elif len(lines) < line_count and self.left + font.getlength(word) <= _TEXT_RIGHT_PX:
                lines.append(word)
            else:
                break
        lines = lines or ["0"]
        glyphs: list[Glyph] = []
        right = 0.0
        for number, line in enumerate(lines):
            end = self._line(font, line, self.left, slot + number, glyphs)
            right = max(right, end)
            if number < len(lines) - 1:
                glyphs.append(Glyph(" ", min(end + 4, PAGE_SIDE_PX - 1), glyphs[-1].y_px))
        box = (self.left, slot * LINE_PITCH_PX, right, (slot + len(lines)) * LINE_PITCH_PX)
        self._add(NanoBlock(label, box, " ".join(lines)), glyphs)

    def table(self, font: ImageFont.FreeTypeFont, rows: list[tuple[str, str]], slot: int) -> None:
        """Rows of a name and a value, the values in a column of their own."""
        widest = max(font.getlength(name) for name, _ in rows)
        column = self.left + min(widest, 0.62 * PAGE_SIDE_PX) + self.rng.uniform(16, 32)
        glyphs: list[Glyph] = []
        right, kept = 0.0, []
        for number, (name, value) in enumerate(rows):
            name, value = _cut(font, name, column - 12 - self.left), _cut(font, value, _TEXT_RIGHT_PX - column)
            self._line(font, name, self.left, slot + number, glyphs)
            right = max(right, self._line(font, value, column, slot + number, glyphs))
            kept.append((name, value))
        box = (self.left, slot * LINE_PITCH_PX, right, (slot + len(rows)) * LINE_PITCH_PX)
        self._add(NanoBlock("table", box, rows=tuple(kept)), glyphs)

    def page_number(self, font: ImageFont.FreeTypeFont, number: str, slot: int) -> None:
        """A number in the middle of the last line."""
        left = (PAGE_SIDE_PX - font.getlength(number)) / 2
        glyphs: list[Glyph] = []
        right = self._line(font, number, left, slot, glyphs)
        box = (left, slot * LINE_PITCH_PX, right, (slot + 1) * LINE_PITCH_PX)
        self._add(NanoBlock("page_number", box, number), glyphs)

    def finish(self) -> NanoPage:
        """Skew, blur and noise come last; glyphs and boxes go with the skew."""
        rng, style = self.rng, self.style
        pixels = np.asarray(self.image)
        angle = rng.uniform(-style.skew_degrees, style.skew_degrees)
        shift = rng.uniform(-1.0, 1.0)
        centre = (PAGE_SIDE_PX / 2, PAGE_SIDE_PX / 2)
        turn: NDArray[np.float64] = np.array(cv2.getRotationMatrix2D(centre, angle, 1.0), dtype=np.float64)
        turn[:, 2:] += shift
        pixels = cv2.warpAffine(pixels, turn, pixels.shape[::-1], flags=cv2.INTER_CUBIC, borderValue=self.paper)
        blur = rng.uniform(0, style.blur_px)
        if blur > 0.25:
            pixels = cv2.GaussianBlur(pixels, (7, 7), blur)
        noise = np.random.default_rng(rng.getrandbits(32)).standard_normal(pixels.shape, dtype=np.float32)
        noisy = pixels.astype(np.float32) + noise * rng.uniform(0, style.noise)
        image = np.clip(noisy, 0, 255).astype(np.uint8)
        glyphs = tuple(
            tuple(Glyph(glyph.character, *_turned(turn, glyph.x_px, glyph.y_px)) for glyph in block)
            for block in self.glyphs
        )
        blocks = tuple(
            NanoBlock(block.label, _turned_box(turn, block.bbox_px), block.text, block.rows) for block in self.blocks
        )
        return NanoPage(image, blocks, glyphs)

    def _line(self, font: ImageFont.FreeTypeFont, text: str, left: float, slot: int, glyphs: list[Glyph]) -> float:
        ascent, descent = font.getmetrics()
        top = slot * LINE_PITCH_PX + (LINE_PITCH_PX - ascent - descent) / 2 + self.top
        self.draw.text((left, top), text, font=font, fill=self.ink)
        x, middle = left, (slot + 0.5) * LINE_PITCH_PX + self.top
        for character in text:
            end = x + _advance(font, character)
            glyphs.append(Glyph(character, (x + end) / 2, middle))
            x = end
        return x

    def _add(self, block: NanoBlock, glyphs: list[Glyph]) -> None:
        self.blocks.append(block)
        self.glyphs.append(glyphs)


def _cut(font: ImageFont.FreeTypeFont, text: str, width: float) -> str:
    while len(text) > 1 and font.getlength(text) > width:
        text = text[:-1]
    return text


def _turned(turn: NDArray[np.float64], x: float, y: float) -> tuple[float, float]:
    new_x, new_y = turn @ (x, y, 1.0)
    return float(np.clip(new_x, 0, PAGE_SIDE_PX - 0.01)), float(np.clip(new_y, 0, PAGE_SIDE_PX - 0.01))


def _turned_box(turn: NDArray[np.float64], box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    corners = [_turned(turn, x, y) for x in box[::2] for y in box[1::2]]
    xs, ys = zip(*corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)
