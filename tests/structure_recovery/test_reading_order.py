from __future__ import annotations

from collections.abc import Callable

from ocr2_core.blocks import Block, PageBlocks
from structure_recovery.elements import pieces_of
from structure_recovery.reading_order import order_page

Maker = Callable[..., Block]


def _column(block: Maker, name: str, x_pt: float, y_pt: float) -> Block:
    rows = [f"{name} words of a column that run to", "its edge and on to the next line of", "the column until it ends"]
    return block(" ".join(rows), y_pt, x_pt=x_pt, lines=rows, width_pt=220)


def _order(page: PageBlocks) -> list[str]:
    return [piece.text.split()[0] for piece in order_page(pieces_of(page))]


def test_one_column(block: Maker, page: Callable[..., PageBlocks]) -> None:
    made = page(0, block("third", 300), block("first", 100), block("second", 200, x_pt=200))
    assert _order(made) == ["first", "second", "third"]


def test_two_columns_whose_paragraph_gaps_line_up(block: Maker, page: Callable[..., PageBlocks]) -> None:
    names = [["left1", "left2", "left3"], ["right1", "right2", "right3"]]
    blocks = [
        _column(block, name, x_pt, 100 + 60 * row)
        for column, x_pt in zip(names, (50, 320), strict=True)
        for row, name in enumerate(column)
    ]
    assert _order(page(0, *reversed(blocks))) == ["left1", "left2", "left3", "right1", "right2", "right3"]


def test_full_width_blocks_between_bands_of_columns(block: Maker, page: Callable[..., PageBlocks]) -> None:
    wide = "words that go over the whole width of the page from the left edge to the right edge of it"
    made = page(
        0,
        _column(block, "a1", 50, 140),
        _column(block, "b1", 320, 140),
        block(f"top {wide}", 100, x_pt=50, width_pt=490),
        _column(block, "a2", 50, 300),
        _column(block, "b2", 320, 300),
        block(f"bar {wide}", 220, x_pt=50, width_pt=490),
    )
    assert _order(made) == ["top", "a1", "b1", "bar", "a2", "b2"]


def test_a_side_note_stands_by_the_paragraph_beside_it(block: Maker, page: Callable[..., PageBlocks]) -> None:
    made = page(
        0,
        block("first paragraph of the text", 100, x_pt=150, width_pt=400),
        block("second paragraph of the text", 200, x_pt=150, width_pt=400),
        block("third paragraph of the text", 300, x_pt=150, width_pt=400),
        block("Note", 200, x_pt=60, width_pt=60),
    )
    assert _order(made) == ["first", "Note", "second", "third"]


def test_the_order_given_makes_no_difference(block: Maker, page: Callable[..., PageBlocks]) -> None:
    blocks = [_column(block, f"c{n}", 50 + 270 * (n % 2), 100 + 60 * (n // 2)) for n in range(8)]
    expected = _order(page(0, *blocks))
    assert _order(page(0, *blocks[::-1])) == expected
    assert _order(page(0, *blocks[3:], *blocks[:3])) == expected
