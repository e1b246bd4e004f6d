from __future__ import annotations

from collections.abc import Callable

from ocr2_core.blocks import Block, PageBlocks
from structure_recovery.elements import pieces_of
from structure_recovery.furniture import Furniture, PageLabel, find_furniture

Maker = Callable[..., Block]


def _find(pages: list[PageBlocks]) -> tuple[Furniture, list[str]]:
    furniture = find_furniture([pieces_of(page) for page in pages], body_pt=10)
    return furniture, sorted(piece.text for piece in furniture.pieces)


def test_a_running_header_with_a_changing_number(block: Maker, page: Callable[..., PageBlocks], prose: Maker) -> None:
    pages = [page(i, block(f"User Manual {i + 8}/123", 30), prose(200), prose(400)) for i in range(4)]
    furniture, texts = _find(pages)
    assert texts == ["User Manual 10/123", "User Manual 11/123", "User Manual 8/123", "User Manual 9/123"]
    assert furniture.page_labels[2] == PageLabel(10, False)


def test_odd_and_even_headers_and_a_misread_letter(block: Maker, page: Callable[..., PageBlocks], prose: Maker) -> None:
    headers = ["Left title words", "Right chapter name", "Left title words", "Right chapter name"]
    headers += ["Left tit1e words", "Right chapter name", "Left title words", "Right chapter name"]
    pages = [page(i, block(text, 30), prose(200)) for i, text in enumerate(headers)]
    _, texts = _find(pages)
    assert texts == sorted(headers)


def test_roman_front_matter_then_arabic_numbers(block: Maker, page: Callable[..., PageBlocks], prose: Maker) -> None:
    labels = ["i", "ii", "iii", "iv", "1", "2", "3"]
    pages = [page(i, prose(200), block(label, 770, x_pt=295)) for i, label in enumerate(labels)]
    furniture, texts = _find(pages)
    assert texts == sorted(labels)
    assert furniture.page_labels[3] == PageLabel(4, True)
    assert furniture.page_labels[4] == PageLabel(1, False)


def test_the_number_of_a_page_in_between_is_inferred(
    block: Maker, page: Callable[..., PageBlocks], prose: Maker
) -> None:
    pages = [page(i, prose(200), *([] if i == 2 else [block(str(i + 5), 770, x_pt=295)])) for i in range(5)]
    furniture, _ = _find(pages)
    assert furniture.page_labels[2] == PageLabel(7, False)


def test_section_titles_in_the_header_go_with_the_page_numbers_beside_them(
    block: Maker, page: Callable[..., PageBlocks], prose: Maker
) -> None:
    titles = ["Safety", "Installing", "First run", "Repairs", "Parts"]
    pages = [page(i, block(title, 30), block(str(i + 1), 30, x_pt=520), prose(200)) for i, title in enumerate(titles)]
    _, texts = _find(pages)
    assert texts == sorted([*titles, "1", "2", "3", "4", "5"])


def test_chapter_openings_at_the_same_place_stay(block: Maker, page: Callable[..., PageBlocks], prose: Maker) -> None:
    pages = [page(i, block(f"Chapter {i + 1}", 70, size_pt=20), prose(200)) for i in range(4)]
    _, texts = _find(pages)
    assert texts == []


def test_repeated_text_in_the_middle_of_pages_stays(
    block: Maker, page: Callable[..., PageBlocks], prose: Maker
) -> None:
    pages = [page(i, prose(200), block("Procedure", 350), prose(400)) for i in range(4)]
    _, texts = _find(pages)
    assert texts == []


def test_the_label_of_an_engine_alone_moves_nothing_out_of_the_middle(
    block: Maker, page: Callable[..., PageBlocks], prose: Maker
) -> None:
    _, texts = _find([page(0, block("A title", 300, label="page_header"), prose(400))])
    assert texts == []
