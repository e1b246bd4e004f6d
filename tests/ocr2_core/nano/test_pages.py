"""Synthetic pages: the same from the same seed, split by text, and with glyphs where the ink is."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pymupdf
import pytest

from ocr2_core.nano.document import write_pdf
from ocr2_core.nano.pages import LINE_SLOTS, PAGE_SIDE_PX, NanoPage, PageStyle, draw_document, draw_page
from ocr2_core.nano.prose import CHARACTERS, words_of
from ocr2_core.nano.vocabulary import (
    EOS,
    PAGE,
    TOKEN_IDS,
    TOKENS,
    decode,
    new_tokenizer,
    page_text,
    write_page,
)
from ocr2_core.ocr2.markup import parse_page

CLEAN = PageStyle(skew_degrees=0.0, blur_px=0.0, noise=0.0, jitter_px=0.0)


def pages(count: int = 40) -> list[NanoPage]:
    return [page for seed in range(count // 4) for page in draw_document(seed, 4, split="test")]


def test_a_seed_gives_the_same_document() -> None:
    first, second = (list(draw_document(7, 2, split="test")) for _ in range(2))
    assert [page.blocks for page in first] == [page.blocks for page in second]
    assert all(np.array_equal(one.image, other.image) for one, other in zip(first, second, strict=True))
    assert [page.blocks for page in draw_document(8, 2, split="test")] != [page.blocks for page in first]


def test_the_splits_share_no_run_of_words() -> None:
    train, test = words_of("train"), words_of("test")
    assert len(test) > 3000
    assert len(train) > 40_000
    runs = [{tuple(words[at : at + 12]) for at in range(0, len(words) - 12)} for words in (train, test)]
    assert len(runs[0] & runs[1]) / len(runs[1]) < 0.01
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        words_of("dev")


def test_what_a_page_says_lies_on_it() -> None:
    for page in pages():
        assert page.image.shape == (PAGE_SIDE_PX, PAGE_SIDE_PX)
        assert page.image.dtype == np.uint8
        for block, glyphs in zip(page.blocks, page.glyphs, strict=True):
            said = "".join(cell for row in block.rows for cell in row) or block.text
            assert "".join(glyph.character for glyph in glyphs) == said
            assert set(said) <= set(CHARACTERS)
            x0, y0, x1, y1 = block.bbox_px
            assert 0 <= x0 < x1 <= PAGE_SIDE_PX
            assert 0 <= y0 < y1 <= PAGE_SIDE_PX
            assert all(x0 - 3 <= glyph.x_px <= x1 + 4 and y0 <= glyph.y_px <= y1 for glyph in glyphs)


def test_there_is_ink_under_every_letter_and_none_beside_the_blocks() -> None:
    for seed in range(20):
        page = draw_page(random.Random(seed), "test", CLEAN)
        paper = int(page.image.max())
        for glyphs in page.glyphs:
            for glyph in glyphs:
                if glyph.character.isalnum():
                    row, column = int(glyph.y_px), int(glyph.x_px)
                    around = page.image[max(0, row - 14) : row + 15, max(0, column - 4) : column + 5]
                    assert around.min() < paper - 60
        outside = np.ones_like(page.image, dtype=bool)
        for block in page.blocks:
            x0, y0, x1, y1 = block.bbox_px
            outside[max(0, int(y0) - 4) : int(y1) + 5, max(0, int(x0) - 6) : int(x1) + 7] = False
        assert page.image[outside].min() > paper - 40


def test_page_numbers_run_on_and_lines_stay_in_their_slots() -> None:
    document = list(draw_document(3, 6, split="train", style=PageStyle(numbered_share=1.0)))
    numbers = [int(page.blocks[-1].text) for page in document]
    assert [page.blocks[-1].label for page in document] == ["page_number"] * 6
    assert numbers == list(range(numbers[0], numbers[0] + 6))
    slots = PAGE_SIDE_PX / LINE_SLOTS
    for page in document:
        tops = [block.bbox_px[1] for block in page.blocks]
        assert tops == sorted(tops)
        assert all(box[3] - box[1] < 4 * slots + 6 for box in (block.bbox_px for block in page.blocks))


def test_markup_goes_through_the_engines_parser_unchanged() -> None:
    for page in pages():
        parsed = parse_page(decode(write_page(page).token_ids))
        assert parsed.notes == []
        told = [block.text for block in parsed.blocks]
        expected = [
            "<table>" + "".join(f"<tr><td>{a}</td><td>{b}</td></tr>" for a, b in block.rows) + "</table>"
            if block.rows
            else block.text
            for block in page.blocks
        ]
        assert told == expected
        for block, truth in zip(parsed.blocks, page.blocks, strict=True):
            scale = 999 / PAGE_SIDE_PX
            assert all(
                abs(value - px * scale) <= 999 / 32 + 1
                for value, px in zip(block.bbox_norm, truth.bbox_px, strict=True)
            )


def test_every_token_tells_where_it_is_read() -> None:
    page = pages(4)[0]
    written = write_page(page)
    assert len(written.token_ids) == len(written.sources)
    letters = [glyph for glyphs in page.glyphs for glyph in glyphs]
    places = {(glyph.x_px, glyph.y_px) for glyph in letters}
    assert set(written.sources) <= places
    by_character = [
        (TOKENS[token], source)
        for token, source in zip(written.token_ids, written.sources, strict=True)
        if len(TOKENS[token]) == 1 and TOKENS[token] in CHARACTERS
    ]
    assert {(glyph.character, (glyph.x_px, glyph.y_px)) for glyph in letters} <= set(by_character)


def test_page_text_is_one_block_or_row_a_line() -> None:
    rows = next(page for page in pages() if any(block.rows for block in page.blocks))
    table = next(block for block in rows.blocks if block.rows)
    assert f"{table.rows[0][0]} {table.rows[0][1]}\n{table.rows[1][0]} {table.rows[1][1]}" in page_text(rows)


def test_a_document_can_be_had_as_a_scan(tmp_path: Path) -> None:
    document = pages(4)
    write_pdf(document, tmp_path / "scan.pdf")
    with pymupdf.open(tmp_path / "scan.pdf") as pdf:
        assert len(pdf) == 4
        for sheet, page in zip(pdf, document, strict=True):
            assert sheet.get_text() == ""
            pixmap = sheet.get_pixmap(colorspace=pymupdf.csGRAY)
            shown = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width)
            assert np.array_equal(shown, page.image)


def test_the_tokenizer_knows_what_the_engine_asks_of_it() -> None:
    tokenizer = new_tokenizer()
    assert len(tokenizer) == len(TOKENS)
    assert tokenizer.encode(PAGE, add_special_tokens=False) == [TOKEN_IDS[PAGE]]
    assert tokenizer.encode("Multi page parsing.", add_special_tokens=False) == [TOKEN_IDS["Multi page parsing."]]
    assert tokenizer.eos_token_id == TOKEN_IDS[EOS]
    for page in pages(8):
        written = write_page(page).token_ids
        assert tokenizer.decode(written, skip_special_tokens=False) == decode(written)
