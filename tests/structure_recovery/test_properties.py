"""Whatever the blocks: no text is lost or doubled, levels skip none, the engine's order makes no difference."""

from __future__ import annotations

from collections import Counter

from docling_core.types.doc import ListItem, SectionHeaderItem
from docling_core.types.doc.document import ContentLayer, DoclingDocument
from hypothesis import given, settings
from hypothesis import strategies as st

from ocr2_core.blocks import Block, BlockLabel, PageBlocks, TextLine
from structure_recovery.recover import recover

_WORDS = st.sampled_from(
    [
        *(
            "Setup",
            "the pump",
            "turn-",
            "ing it off.",
            "1",
            "2.3",
            "1.1 Frame",
            "Chapter 2",
            "Appendix A Parts",
            "iv",
            "12",
        ),
        *(
            "第1章 概要",
            "一、范围",
            "Contents",
            "Table 1: Sizes",
            "• item",
            "1. step",
            "Safety ...... 3",
            "1 Use .... 12",
            "Note",
        ),
        *(
            "A long line of words that goes on and on until the edge",
            "and ends in lower case",
            "Ünïcode straße",
            "ABC DEF",
        ),
    ]
)
_LABELS = st.sampled_from([label for label in BlockLabel if label is not BlockLabel.TABLE])


@st.composite
def _blocks(draw: st.DrawFn) -> Block:
    x0, y0 = draw(st.integers(20, 700)), draw(st.integers(10, 950))
    size = draw(st.integers(8, 30))
    rows = draw(st.lists(_WORDS, min_size=1, max_size=3))
    width = draw(st.integers(40, 280))
    box = (float(x0), float(y0), float(x0 + width), float(min(y0 + size * len(rows), 999)))
    lines = []
    if draw(st.booleans()):
        lines = [
            TextLine(
                bbox_norm=(box[0], min(box[1] + size * n, 998), box[2], min(box[1] + size * (n + 1), 999)),
                text=row,
                font_height_norm=float(size),
                is_bold=draw(st.sampled_from([None, True, False])),
            )
            for n, row in enumerate(rows)
        ]
    return Block(label=draw(_LABELS), bbox_norm=box, text=" ".join(rows), lines=lines)


_PAGES = st.lists(st.lists(_blocks(), max_size=7), min_size=1, max_size=4)


def _pages(blocks: list[list[Block]]) -> list[PageBlocks]:
    return [PageBlocks(page_index=i, width_pt=600, height_pt=800, blocks=page) for i, page in enumerate(blocks)]


def _characters(texts: list[str]) -> Counter[str]:
    return Counter(character for text in texts for character in text if character.isalnum())


def _texts_of(document: DoclingDocument) -> list[str]:
    texts = [f"{item.marker} {item.text}" if isinstance(item, ListItem) else item.text for item in document.texts]
    return texts + [cell.text for table in document.tables for cell in table.data.table_cells]


@settings(max_examples=150, deadline=None)
@given(_PAGES)
def test_no_text_is_lost_or_doubled(blocks: list[list[Block]]) -> None:
    document = recover(_pages(blocks), name="m").document
    assert _characters(_texts_of(document)) == _characters([block.text for page in blocks for block in page])


@settings(max_examples=100, deadline=None)
@given(_PAGES)
def test_levels_start_at_one_and_skip_none(blocks: list[list[Block]]) -> None:
    document = recover(_pages(blocks), name="m").document
    level = 0
    for item, _ in document.iterate_items():
        if isinstance(item, SectionHeaderItem):
            assert 1 <= item.level <= level + 1
            level = item.level


@settings(max_examples=100, deadline=None)
@given(_PAGES, st.randoms(use_true_random=False))
def test_the_engines_order_makes_no_difference(blocks: list[list[Block]], random: object) -> None:
    shuffled = [list(page) for page in blocks]
    for page in shuffled:
        random.shuffle(page)  # type: ignore[attr-defined]
    first, second = (recover(_pages(made), name="m").document for made in (blocks, shuffled))
    assert first.export_to_dict() == second.export_to_dict()


@settings(max_examples=100, deadline=None)
@given(_PAGES)
def test_provenance_lies_on_its_page_and_spans_cover_the_text(blocks: list[list[Block]]) -> None:
    document = recover(_pages(blocks), name="m").document
    for item, _ in document.iterate_items(included_content_layers=set(ContentLayer)):
        for prov in getattr(item, "prov", []):
            assert prov.page_no in document.pages
            assert 0 <= prov.bbox.l <= prov.bbox.r <= 600
            assert 0 <= prov.bbox.t <= prov.bbox.b <= 800
            assert 0 <= prov.charspan[0] <= prov.charspan[1] <= len(getattr(item, "text", ""))
