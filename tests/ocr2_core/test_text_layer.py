"""Lines of a PDF's text layer, and the reasons for not trusting one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pymupdf
import pytest

from ocr2_core.geometry import from_pixels
from ocr2_core.rendering import RawPage, open_source
from ocr2_core.text_layer import TextLayer, read_text_layer
from tests.ocr2_core.source_files import SAMPLES, printed_page

PARAGRAPH = "The unit keeps its settings when the power fails."


@pytest.fixture
def page() -> pymupdf.Page:
    document = pymupdf.open()
    page: pymupdf.Page = document.new_page(width=600, height=800)
    # the document lives as long as its page
    page.owner = document
    return page


def _write(page: pymupdf.Page, line_count: int = 6, **options: object) -> None:
    for index in range(line_count):
        page.insert_text((72, 200 + 16 * index), PARAGRAPH, fontsize=11, **options)


def _texts(layer: TextLayer) -> list[str]:
    assert layer.refusal is None
    return [line.text for line in layer.lines]


def test_lines_carry_their_box_size_and_weight(page: pymupdf.Page) -> None:
    page.insert_text((60, 80), "Maintenance", fontname="hebo", fontsize=20)
    page.insert_text((60, 120), "Clean the filter.", fontname="helv", fontsize=10)
    page.insert_text((60, 160), "show  version", fontname="cour", fontsize=10)
    title, text, code = read_text_layer(page).lines
    assert (title.text, title.is_bold, title.is_monospace) == ("Maintenance", True, False)
    assert (text.text, text.is_bold, text.is_monospace) == ("Clean the filter.", False, False)
    assert (code.text, code.is_monospace) == ("show  version", True)
    # 20 pt and 10 pt on a page of 800 pt
    assert title.font_height_norm == pytest.approx(25.0)
    assert text.font_height_norm == pytest.approx(12.5)
    x0, y0, x1, y1 = text.bbox_norm
    assert x0 == pytest.approx(60 / 600 * 999, abs=1)
    # the sentence is 67.24 pt wide in Helvetica
    assert x1 == pytest.approx(127.24 / 600 * 999, abs=1)
    assert y0 < 120 / 800 * 999 < y1


def test_a_number_set_apart_belongs_to_its_heading(page: pymupdf.Page) -> None:
    page.insert_text((60, 80), "2.1", fontsize=14)
    page.insert_text((100, 80), "Installing the pump", fontsize=14)
    page.insert_text((60, 120), "\u2022", fontsize=11, fontname="helv")
    page.insert_text((78, 120), "Unpack all parts.", fontsize=11)
    assert _texts(read_text_layer(page))[0] == "2.1 Installing the pump"
    assert _texts(read_text_layer(page))[1].endswith("Unpack all parts.")
    assert len(read_text_layer(page).lines) == 2


def test_columns_stay_apart_on_a_common_baseline(page: pymupdf.Page) -> None:
    for index in range(5):
        page.insert_text((60, 100 + 14 * index), f"left column line {index}", fontsize=10)
        page.insert_text((320, 100 + 14 * index), f"right column line {index}", fontsize=10)
    texts = _texts(read_text_layer(page))
    assert len(texts) == 10
    assert set(texts) == {f"{side} column line {index}" for side in ("left", "right") for index in range(5)}


def test_a_row_of_spaces_parts_two_columns(page: pymupdf.Page) -> None:
    page.insert_text((60, 100), "Voltage" + " " * 30 + "230 V", fontsize=10)
    assert _texts(read_text_layer(page)) == ["Voltage", "230 V"]


@pytest.mark.parametrize("stored_rotation", [0, 90, 180, 270])
def test_a_page_displayed_upright_is_not_turned(page: pymupdf.Page, stored_rotation: int) -> None:
    _write_upright_on_displayed_page(page, stored_rotation)
    layer = read_text_layer(page)
    assert _texts(layer) == [PARAGRAPH]
    assert layer.rotation_degrees == 0
    assert page.rotation == stored_rotation
    _assert_box_is_where_the_ink_is(page, layer)


@pytest.mark.parametrize("stored_rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("wrong_by", [90, 180, 270])
def test_sideways_text_turns_the_page(page: pymupdf.Page, stored_rotation: int, wrong_by: int) -> None:
    _write_upright_on_displayed_page(page, stored_rotation)
    page.set_rotation((stored_rotation + wrong_by) % 360)
    layer = read_text_layer(page)
    assert _texts(layer) == [PARAGRAPH]
    assert layer.rotation_degrees == 360 - wrong_by
    assert page.rotation == stored_rotation
    _assert_box_is_where_the_ink_is(page, layer)


def _write_upright_on_displayed_page(page: pymupdf.Page, stored_rotation: int) -> None:
    page.set_rotation(stored_rotation)
    start = pymupdf.Point(120, 250) * page.derotation_matrix
    page.insert_text(start, PARAGRAPH, fontsize=11, rotate=stored_rotation)


def _assert_box_is_where_the_ink_is(page: pymupdf.Page, layer: TextLayer) -> None:
    pixmap = page.get_pixmap(colorspace=pymupdf.csGRAY)
    image = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width)
    ys, xs = np.nonzero(image < 128)
    ink = from_pixels((xs.min(), ys.min(), xs.max(), ys.max()), pixmap.width, pixmap.height)
    (line,) = layer.lines
    assert line.bbox_norm[0] == pytest.approx(ink[0], abs=4)
    assert line.bbox_norm[2] == pytest.approx(ink[2], abs=4)
    assert ink[1] - 8 < line.bbox_norm[1] < ink[1] < ink[3] < line.bbox_norm[3] < ink[3] + 8


def test_a_page_without_text_is_refused(page: pymupdf.Page) -> None:
    assert read_text_layer(page).refusal == "the page has no text layer"


def test_an_earlier_ocr_is_refused(page: pymupdf.Page) -> None:
    page.insert_image(page.rect, pixmap=_gray_picture())
    _write(page, render_mode=3)
    assert read_text_layer(page).refusal == ("246 of 246 characters are invisible: the result of an earlier OCR")


def test_a_stamp_on_a_scan_is_refused(page: pymupdf.Page) -> None:
    page.insert_image(page.rect, pixmap=_gray_picture())
    page.insert_text((300, 780), "Page 17 of 60", fontsize=9)
    refusal = read_text_layer(page).refusal
    assert refusal is not None
    assert refusal.startswith("pictures without text cover 100% of the page")


def test_a_screenshot_of_modest_size_is_no_obstacle(page: pymupdf.Page) -> None:
    page.insert_image(pymupdf.Rect(72, 400, 400, 600), pixmap=_gray_picture())
    _write(page)
    assert _texts(read_text_layer(page)) == [PARAGRAPH] * 6


def test_characters_without_meaning_are_refused(page: pymupdf.Page) -> None:
    document = page.parent
    _write(page)
    broken = document.tobytes(expand=255).replace(b"/WinAnsiEncoding", b"/IdentityEncodng")
    # a ToUnicode map that sends every code to the private use area
    cmap = b"1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfrange <00> <FF> <E000> endbfrange"
    document = pymupdf.open(stream=broken, filetype="pdf")
    font = next(xref for xref in range(1, document.xref_length()) if document.xref_get_key(xref, "Type")[1] == "/Font")
    stream = document.get_new_xref()
    document.update_object(stream, "<<>>")
    document.update_stream(stream, cmap)
    document.xref_set_key(font, "ToUnicode", f"{stream} 0 R")
    reopened = pymupdf.open(stream=document.tobytes(), filetype="pdf")
    refusal = read_text_layer(reopened[0]).refusal
    assert refusal is not None
    assert "have no meaning in Unicode" in refusal


def test_a_font_that_says_symbols_for_letters_is_refused(page: pymupdf.Page) -> None:
    page.insert_text((72, 100), "#$%& '()!? +,;: <>@# [&]^ {~}%", fontsize=11)
    refusal = read_text_layer(page).refusal
    assert refusal is not None
    assert "are letters or digits" in refusal


def test_dotted_lines_of_a_contents_page_are_no_obstacle(page: pymupdf.Page) -> None:
    page.insert_text((72, 100), "1 Safety " + "." * 60 + " 7", fontsize=11)
    page.insert_text((72, 120), "2 Setup " + "." * 60 + " 9", fontsize=11)
    assert [text.split()[1] for text in _texts(read_text_layer(page))] == ["Safety", "Setup"]


def test_text_drawn_as_curves_is_refused(page: pymupdf.Page) -> None:
    shape = page.new_shape()
    for row in range(15):
        for column in range(30):
            corner = pymupdf.Point(60 + 15 * column, 100 + 20 * row)
            shape.draw_rect(pymupdf.Rect(corner.x, corner.y, corner.x + 6, corner.y + 9))
            shape.finish(fill=(0, 0, 0), color=None)
    shape.commit()
    page.insert_text((300, 780), "17", fontsize=9)
    assert read_text_layer(page).refusal == "450 shapes of letter size are drawn as curves beside 2 characters"


def test_words_in_annotations_are_not_lost(page: pymupdf.Page) -> None:
    _write(page)
    page.add_freetext_annot(pymupdf.Rect(72, 500, 300, 540), "Superseded by rev. C")
    assert read_text_layer(page).refusal == "annotations or form fields show text that the layer does not hold"


def test_text_outside_the_page_is_left_out(page: pymupdf.Page) -> None:
    page.insert_text((72, 100), "seen", fontsize=11)
    page.insert_text((400, 100), "unseen", fontsize=11)
    page.set_cropbox(pymupdf.Rect(0, 0, 200, 800))
    assert _texts(read_text_layer(page)) == ["seen"]


def test_lines_reach_the_reader_only_when_asked_for(tmp_path: Path) -> None:
    document = pymupdf.open()
    _write(document.new_page())
    document.new_page()
    document.save(tmp_path / "manual.pdf")

    def render(with_text_layer: bool) -> list[RawPage]:
        with open_source(tmp_path / "manual.pdf", with_text_layer=with_text_layer) as source:
            return list(source.pages())

    first, second = render(True)
    assert first.text_lines is not None
    assert [line.text for line in first.text_lines] == [PARAGRAPH] * 6
    assert (second.text_lines, second.text_layer_refusal) == (None, "the page has no text layer")
    assert all(page.text_lines is None for page in render(False))


def test_no_page_of_a_real_scan_has_a_text_layer() -> None:
    with pymupdf.open(SAMPLES / "tool-setup-guide.pdf") as document:
        assert {read_text_layer(page).refusal for page in document} == {"the page has no text layer"}


def _gray_picture() -> pymupdf.Pixmap:
    image = np.asarray(printed_page(["a scan"], (600, 800)))
    return pymupdf.Pixmap(pymupdf.csGRAY, image.shape[1], image.shape[0], image.tobytes(), False)
