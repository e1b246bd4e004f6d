"""The nano model's tokens: one a character, and one each for markers, labels, table tags and box coordinates.

Coordinates are multiples of a sixteenth of the page's side, so few numbers occur and each has a token. A page is
written as the model family writes it: `<|det|>label [x0, y0, x1, y1]<|/det|>text`, tables as HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ocr2_core.geometry import NORM_MAX
from ocr2_core.nano.pages import PAGE_SIDE_PX, Glyph, NanoBlock, NanoPage
from ocr2_core.nano.prose import CHARACTERS

PAD, BOS, EOS, IMAGE = "<|pad|>", "<|begin|>", "<|end|>", "<image>"
PAGE, DET, DET_END = "<PAGE>", "<|det|>", "<|/det|>"
GROUP_PROMPT, SINGLE_PROMPT = "Multi page parsing.", "document parsing."
_LABELS = ("title", "text", "table", "page_number")
_TABLE_TAGS = tuple(f"<{slash}{name}>" for name in ("table", "tr", "td") for slash in ("", "/"))
_GRID = 16
_STEPS = tuple(str(round(NORM_MAX * step / _GRID)) for step in range(_GRID + 1))
_SPECIAL = (PAD, BOS, EOS, IMAGE, PAGE, DET, DET_END, GROUP_PROMPT, SINGLE_PROMPT)
TOKENS = (*_SPECIAL, *_LABELS, *_TABLE_TAGS, " [", ", ", "]", *(step for step in _STEPS if len(step) > 1), *CHARACTERS)
TOKEN_IDS = {token: number for number, token in enumerate(TOKENS)}


@dataclass(frozen=True, slots=True)
class WrittenPage:
    """A page as the model should write it, without marker and end. `sources`: for each token where on the page it is
    read, in pixels: the character itself, or the start of its block or cell for markup."""

    token_ids: tuple[int, ...]
    sources: tuple[tuple[float, float], ...]


def write_page(page: NanoPage) -> WrittenPage:
    """The page's markup as tokens."""
    token_ids: list[int] = []
    sources: list[tuple[float, float]] = []

    def put(token: str, source: tuple[float, float]) -> None:
        token_ids.append(TOKEN_IDS[token])
        sources.append(source)

    for block, glyphs in zip(page.blocks, page.glyphs, strict=True):
        start = (glyphs[0].x_px, glyphs[0].y_px)
        put(DET, start)
        put(block.label, start)
        x0, y0, x1, y1 = (_step(value) for value in block.bbox_px)
        for token in (" [", x0, ", ", y0, ", "):
            put(token, start)
        end = (glyphs[-1].x_px, glyphs[-1].y_px)
        for token in (x1, ", ", y1, "]"):
            put(token, end)
        put(DET_END, start)
        if block.rows:
            _write_table(block, glyphs, put)
        else:
            for glyph in glyphs:
                put(glyph.character, (glyph.x_px, glyph.y_px))
    return WrittenPage(tuple(token_ids), tuple(sources))


def page_text(page: NanoPage) -> str:
    """The page's words in reading order, one block or row a line: what a reader is compared with."""
    lines = []
    for block in page.blocks:
        lines.extend([" ".join(row) for row in block.rows] or [block.text])
    return "\n".join(lines)


def decode(token_ids: Sequence[int]) -> str:
    """The text of tokens."""
    return "".join(TOKENS[number] for number in token_ids)


def new_tokenizer() -> Any:
    """The vocabulary as a transformers tokenizer. It decodes what the model writes, and encodes its prompts."""
    from tokenizers import AddedToken, Tokenizer, decoders
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(BPE(vocab=TOKEN_IDS, merges=[], fuse_unk=False))
    tokenizer.decoder = decoders.Fuse()
    many = [token for token in TOKENS if len(token) > 1]
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in many if token not in _SPECIAL])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in _SPECIAL])
    special = {"pad_token": PAD, "bos_token": BOS, "eos_token": EOS}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)  # type: ignore[no-untyped-call]


def _write_table(block: NanoBlock, glyphs: Sequence[Glyph], put: Any) -> None:
    place = 0
    first = (glyphs[0].x_px, glyphs[0].y_px)
    put("<table>", first)
    for row in block.rows:
        put("<tr>", (glyphs[place].x_px, glyphs[place].y_px))
        for cell in row:
            put("<td>", (glyphs[place].x_px, glyphs[place].y_px))
            for glyph in glyphs[place : place + len(cell)]:
                put(glyph.character, (glyph.x_px, glyph.y_px))
            place += len(cell)
            put("</td>", (glyphs[place - 1].x_px, glyphs[place - 1].y_px))
        put("</tr>", (glyphs[place - 1].x_px, glyphs[place - 1].y_px))
    put("</table>", (glyphs[-1].x_px, glyphs[-1].y_px))


def _step(value_px: float) -> str:
    return _STEPS[min(_GRID, max(0, round(value_px * _GRID / PAGE_SIDE_PX)))]
