"""The text layer of a PDF page: its printed lines, and whether they can be trusted. Runs in the child process.

A text layer is trusted when it says the same as the page shows. Each way it may not has its own words, because "why was
this page read by OCR?" is the first thing an operator asks.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pymupdf

from ocr2_core.blocks import TextLine
from ocr2_core.geometry import from_pixels
from ocr2_core.line_pieces import LinePiece, join_pieces

# share of characters, area or glyph shapes above which a layer is not trusted
MAX_BAD_CHARACTER_SHARE = 0.03
MAX_INVISIBLE_SHARE = 0.05
MAX_SYMBOL_SHARE = 0.5
MAX_BARE_IMAGE_SHARE = 0.3
MIN_GLYPH_CURVES = 200

_FILLED_OR_STROKED = pymupdf.mupdf.FZ_STEXT_FILLED | pymupdf.mupdf.FZ_STEXT_STROKED
_BOLD_NAME = re.compile(r"bold|black|heavy|semibold|demi|cmbx|sfbx|ecbx|-bd\b", re.IGNORECASE)
_MONO_NAME = re.compile(r"mono|courier|typewriter|consol|cmtt|sftt|ectt|fixed|menlo", re.IGNORECASE)
_PRINTABLE_PRIVATE = {"\uf0b7": "•", "\uf0a7": "▪", "\uf0d8": "➢", "\uf0fc": "✓", "\uf020": " ", "\uf02d": "-"}
# what fills a contents page's dotted lines, forms and rules
_LEADERS = frozenset(".·…_-–—•‥=*│|")

_Box = tuple[float, float, float, float]


@dataclass(slots=True)
class TextLayer:
    """The lines of a page, or why they cannot be trusted (`refusal`).

    `rotation_degrees`: the clockwise quarter turn that was applied to the page because its text runs sideways.
    """

    lines: list[TextLine] = field(default_factory=list)
    refusal: str | None = None
    rotation_degrees: int = 0


@dataclass(slots=True)
class Glyphs:
    """What the characters of a page look like as a whole."""

    visible: int = 0
    invisible: int = 0
    bad: int = 0
    letters: int = 0
    leaders: int = 0


def read_text_layer(page: pymupdf.Page) -> TextLayer:
    """Lines in the frame of the page as displayed, in the file's order, with the verdict on them.

    A page whose text runs sideways or upside down is turned (`page.rotation` changes), so that it can be rendered and
    read upright; it is left as it was when its text layer is refused.
    """
    raw_lines = _raw_lines(page)
    turn = text_rotation(raw_lines)
    if turn:
        page.set_rotation((page.rotation + turn) % 360)
        raw_lines = _raw_lines(page)
    pieces, glyphs = _read_pieces(raw_lines)
    refusal = find_refusal(page, glyphs, pieces)
    if refusal is not None:
        if turn:
            page.set_rotation((page.rotation - turn) % 360)
        return TextLayer(refusal=refusal)
    lines = [_to_text_line(piece, page.rect) for piece in join_pieces(pieces)]
    return TextLayer(lines=[line for line in lines if line.text.strip()], rotation_degrees=turn)


def text_rotation(raw_lines: list[dict[str, Any]]) -> int:
    """Clockwise turn (0, 90, 180, 270) that sets most of the page's text upright; 0 without a clear majority."""
    turns: Counter[int] = Counter()
    for line in raw_lines:
        # a vertical CJK line runs downwards on an upright page
        if line["wmode"] == 0:
            right, down = line["dir"]
            turn = {(1, 0): 0, (0, -1): 90, (-1, 0): 180, (0, 1): 270}.get((round(right), round(down)))
            if turn is not None:
                turns[turn] += sum(len(span["chars"]) for span in line["spans"])
    if not turns:
        return 0
    turn, count = turns.most_common(1)[0]
    return turn if count > 0.8 * turns.total() else 0


def find_refusal(page: pymupdf.Page, glyphs: Glyphs, pieces: list[LinePiece]) -> str | None:
    """Why the text layer is not to be trusted, or None when it is sound."""
    total = glyphs.visible + glyphs.invisible
    if total == 0:
        return "the page has no text layer"
    if glyphs.invisible > MAX_INVISIBLE_SHARE * total:
        return f"{glyphs.invisible} of {total} characters are invisible: the result of an earlier OCR"
    if glyphs.bad > MAX_BAD_CHARACTER_SHARE * total:
        return f"{glyphs.bad} of {total} characters have no meaning in Unicode (a font without a usable encoding)"
    countable = glyphs.visible - glyphs.leaders
    if countable >= 20 and glyphs.letters < (1 - MAX_SYMBOL_SHARE) * countable:
        return f"only {glyphs.letters} of {countable} characters are letters or digits (a font with a wrong encoding)"
    bare_share = _bare_image_share(page, pieces)
    if bare_share > MAX_BARE_IMAGE_SHARE:
        return f"pictures without text cover {bare_share:.0%} of the page; they may show more text"
    curves = _count_glyph_curves(page)
    if curves > max(MIN_GLYPH_CURVES, glyphs.visible):
        return f"{curves} shapes of letter size are drawn as curves beside {glyphs.visible} characters"
    if _has_text_in_annotations(page):
        return "annotations or form fields show text that the layer does not hold"
    return None


def _raw_lines(page: pymupdf.Page) -> list[dict[str, Any]]:
    """MuPDF's lines, boxes and directions turned from the page as stored to the page as displayed."""
    blocks = page.get_text("rawdict", flags=pymupdf.TEXT_PRESERVE_WHITESPACE)["blocks"]
    lines = [line for block in blocks for line in block.get("lines", ())]
    if page.rotation:
        a, b, c, d, e, f = _display_matrix(page)
        for line in lines:
            right, down = line["dir"]
            line["dir"] = (right * a + down * c, right * b + down * d)
            for char in (char for span in line["spans"] for char in span["chars"]):
                char["bbox"] = _displayed(char["bbox"], page)
                x, y = char["origin"]
                char["origin"] = (x * a + y * c + e, x * b + y * d + f)
    return lines


def _display_matrix(page: pymupdf.Page) -> tuple[float, float, float, float, float, float]:
    matrix = page.rotation_matrix
    return matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f


def _displayed(box: _Box, page: pymupdf.Page) -> _Box:
    """A box of the page as stored (all that MuPDF reports is in that frame) on the page as displayed."""
    a, b, c, d, e, f = _display_matrix(page)
    xs = [x * a + y * c + e for x in (box[0], box[2]) for y in (box[1], box[3])]
    ys = [x * b + y * d + f for x in (box[0], box[2]) for y in (box[1], box[3])]
    return min(xs), min(ys), max(xs), max(ys)


def _read_pieces(raw_lines: list[dict[str, Any]]) -> tuple[list[LinePiece], Glyphs]:
    glyphs = Glyphs()
    pieces: list[LinePiece] = []
    for line in raw_lines:
        piece = LinePiece(is_upright=line["wmode"] == 0 and line["dir"][0] > 0.99)
        for span in line["spans"]:
            is_visible = bool(span["char_flags"] & _FILLED_OR_STROKED) and span["alpha"] > 0
            is_bold = bool(span["flags"] & pymupdf.TEXT_FONT_BOLD) or bool(_BOLD_NAME.search(span["font"]))
            is_mono = bool(span["flags"] & pymupdf.TEXT_FONT_MONOSPACED) or bool(_MONO_NAME.search(span["font"]))
            for char in span["chars"]:
                text = _PRINTABLE_PRIVATE.get(char["c"], char["c"])
                _count(glyphs, text, is_visible)
                if not is_visible:
                    continue
                if piece.is_gap_before(char["bbox"], text, span["size"]):
                    pieces.append(piece)
                    piece = LinePiece(is_upright=piece.is_upright)
                piece.add(text, char["bbox"], char["origin"][1], span["size"], is_bold, is_mono)
        pieces.append(piece)
    return [piece for piece in pieces if piece.text.strip()], glyphs


def _count(glyphs: Glyphs, text: str, is_visible: bool) -> None:
    if text.isspace():
        return
    if not is_visible:
        glyphs.invisible += 1
        return
    glyphs.visible += 1
    category = unicodedata.category(text[0])
    if text == "\ufffd" or category in ("Co", "Cc", "Cn", "Cs"):
        glyphs.bad += 1
    elif category[0] in "LMN":
        glyphs.letters += 1
    elif text in _LEADERS:
        glyphs.leaders += 1


def _to_text_line(piece: LinePiece, page_rect: pymupdf.Rect) -> TextLine:
    x0, y0, x1, y1 = piece.bbox
    box = (x0 - page_rect.x0, y0 - page_rect.y0, x1 - page_rect.x0, y1 - page_rect.y0)
    return TextLine(
        bbox_norm=from_pixels(box, page_rect.width, page_rect.height),
        text=" ".join(unicodedata.normalize("NFC", piece.text).split())
        if not piece.is_monospace
        else piece.text.rstrip(),
        confidence=1.0,
        font_height_norm=max(piece.font_size, 0.01) / page_rect.height * 1000.0,
        is_bold=piece.is_bold,
        is_monospace=piece.is_monospace,
    )


def _bare_image_share(page: pymupdf.Page, pieces: list[LinePiece]) -> float:
    """Share of the page under pictures, less what text covers; overlapping pictures count once (64 x 64 raster)."""
    cells = 64
    covered = bytearray(cells * cells)
    rect = page.rect

    def paint(box: _Box, value: int) -> None:
        columns = [min(cells, max(0, round((x - rect.x0) / rect.width * cells))) for x in (box[0], box[2])]
        rows = [min(cells, max(0, round((y - rect.y0) / rect.height * cells))) for y in (box[1], box[3])]
        for row in range(rows[0], rows[1]):
            covered[row * cells + columns[0] : row * cells + columns[1]] = bytes([value]) * max(
                0, columns[1] - columns[0]
            )

    for kind, box in page.get_bboxlog():
        if kind in ("fill-image", "fill-imgmask"):
            paint(_displayed(box, page), 1)
    for piece in pieces:
        paint(piece.bbox, 0)
    return sum(covered) / len(covered)


def _count_glyph_curves(page: pymupdf.Page) -> int:
    """Filled shapes of the size of letters: text turned into outlines shows as hundreds of them."""
    return sum(
        1
        for kind, (x0, y0, x1, y1) in page.get_bboxlog()
        if kind == "fill-path" and 1.5 < x1 - x0 < 25 and 1.5 < y1 - y0 < 25 and max(x1 - x0, y1 - y0) > 3
    )


def _has_text_in_annotations(page: pymupdf.Page) -> bool:
    if any(widget.field_value for widget in page.widgets()):
        return True
    kinds = (pymupdf.mupdf.PDF_ANNOT_FREE_TEXT, pymupdf.mupdf.PDF_ANNOT_STAMP)
    return next(page.annots(types=kinds), None) is not None
