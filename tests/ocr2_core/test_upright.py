"""Pages are found blank, turned and tilted from their picture alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pymupdf
import pytest
from numpy.typing import NDArray
from PIL import Image

from ocr2_core.engine import PageImage
from ocr2_core.geometry import from_pixels, to_upright_page
from ocr2_core.rendering import RawPage, open_source
from ocr2_core.upright import BlankPage, deskew, find_rotation, find_skew, ink_ratio, is_blank, prepare, turn
from tests.ocr2_core.source_files import SAMPLES, printed_page, scan_noise

Gray = NDArray[np.uint8]

A4_200 = (2339, 1654)
SENTENCES = [
    "Before you begin, read every page of this manual.",
    "Torque the flange bolts to 12 Nm in two passes.",
    "Do not open the valve while the pump is running!",
    "Replace the filter after 400 hours of operation.",
    "See chapter 7 for a list of all spare parts.",
] * 5
VERTICAL = "この装置を使う前に取扱説明書を最後まで読んでください電源を切ってから部品を交換します点検は毎月一度行うこと"


def _put(sheet: Gray, mark: Image.Image, left: int, top: int) -> Gray:
    """Print a mark (dark on white) onto a sheet."""
    part = sheet[top : top + mark.height, left : left + mark.width]
    part[:] = np.minimum(part, np.asarray(mark))
    return sheet


def _digit() -> Image.Image:
    # 22 px at 200 dpi is 8 pt
    return printed_page(["7"], font_px=22).crop((80, 85, 115, 120))


@pytest.fixture(scope="module")
def scans() -> list[RawPage]:
    """Six real scanned pages: contents, text, a ruled table, a figure, code and notes."""
    pages = []
    for name, indices in (("ups-user-manual.pdf", [1, 4, 10, 13]), ("tool-setup-guide.pdf", [2, 4])):
        with open_source(Path(SAMPLES / name)) as source:
            pages += list(source.pages(indices))
    return pages


@pytest.mark.parametrize("seed", range(4))
def test_a_blank_sheet_with_noise_specks_and_shading_is_blank(seed: int) -> None:
    assert is_blank(scan_noise(A4_200, seed), 200)
    assert is_blank(scan_noise(A4_200, seed, paper=205, sigma=11), 200)


def test_one_printed_digit_makes_a_page() -> None:
    sheet = _put(scan_noise(A4_200, 1), _digit(), 820, 2200)
    assert not is_blank(sheet, 200)
    assert 0 < ink_ratio(sheet, 200) < 0.001


def test_dark_edges_streaks_and_punch_holes_are_no_ink() -> None:
    sheet = scan_noise(A4_200, 2)
    sheet[:, :40] = 30
    sheet[-25:, :] = 50
    sheet[:, 1200:1202] = 80
    for y in (700, 1500):
        cv2.circle(sheet, (90, y), 24, (25,), -1)
    assert is_blank(sheet, 200)


def test_the_other_side_showing_through_is_no_ink() -> None:
    other = np.asarray(printed_page(SENTENCES, (1654, 2339), 36))[:, ::-1].astype(np.float32)
    faint = 1 - (255 - cv2.GaussianBlur(other, (0, 0), 2)) / 255 * 0.12
    sheet = (scan_noise(A4_200, 3) * faint).clip(0, 255).astype(np.uint8)
    assert is_blank(sheet, 200)


def test_a_full_page_picture_and_a_black_page_are_not_blank() -> None:
    gradient = np.linspace(20, 200, A4_200[0])[:, None].repeat(A4_200[1], axis=1).astype(np.uint8)
    assert not is_blank(gradient, 200)
    assert not is_blank(np.full(A4_200, 20, np.uint8), 200)


@pytest.mark.parametrize("applied", [0, 90, 180, 270])
def test_real_scans_are_turned_back(scans: list[RawPage], applied: int) -> None:
    found = [find_rotation(turn(_image(page), applied), page.dpi) for page in scans]
    assert found == [(360 - applied) % 360] * len(scans)


def test_vertical_japanese_is_upright_though_its_lines_run_down() -> None:
    page = pymupdf.open().new_page(width=595, height=842)
    writer = pymupdf.TextWriter(page.rect)
    font = pymupdf.Font("japan")
    for index in range(24 * 50):
        column, row = divmod(index, 50)
        writer.append((520 - 20 * column, 80 + 14 * row), VERTICAL[index % len(VERTICAL)], font=font, fontsize=12)
    writer.write_text(page)
    pixmap = page.get_pixmap(dpi=200, colorspace=pymupdf.csGRAY)
    sheet = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width)
    assert [find_rotation(turn(sheet, applied), 200) for applied in (0, 90, 180, 270)] == [0, 270, 180, 90]


def test_a_page_with_little_on_it_is_left_as_it_is() -> None:
    sheet = _put(scan_noise(A4_200, 4), _digit(), 820, 2200)
    assert [find_rotation(turn(sheet, applied), 200) for applied in (0, 90, 180, 270)] == [0, 0, 0, 0]


@pytest.mark.parametrize("applied", [-4.6, -1.5, -0.3, 0.0, 0.25, 2.2, 4.8])
def test_the_tilt_is_found_to_a_twentieth_of_a_degree(applied: float) -> None:
    page = printed_page(SENTENCES, (1654, 2339), 34)
    # PIL turns anticlockwise, the tilt is counted clockwise
    tilted = np.asarray(page.rotate(-applied, resample=Image.Resampling.BICUBIC, fillcolor=255))
    assert find_skew(tilted, 200) == pytest.approx(applied, abs=0.05)


def test_a_page_without_lines_has_no_tilt() -> None:
    assert find_skew(scan_noise(A4_200, 5), 200) == 0.0
    assert find_skew(_put(scan_noise(A4_200, 6), _digit(), 820, 2200), 200) == 0.0


@pytest.mark.parametrize("tilt", [-3.0, 2.0])
def test_a_box_of_the_deskewed_page_maps_back_onto_the_ink(tilt: float) -> None:
    page = printed_page(SENTENCES, (1654, 2339), 34)
    mark = (1100, 1900, 1300, 1960)
    page.paste(0, mark)
    tilted = np.asarray(page.rotate(-tilt, resample=Image.Resampling.BICUBIC, fillcolor=255))
    prepared = prepare(RawPage(page_index=0, image=tilted, dpi=200))
    assert isinstance(prepared, PageImage)
    assert prepared.skew_degrees == pytest.approx(tilt, abs=0.05)
    height, width = tilted.shape
    found = _largest_mark(prepared.image)
    assert found == pytest.approx(mark, abs=4)
    back = to_upright_page(from_pixels(found, width, height), prepared.skew_degrees, width / height)
    expected = from_pixels(_largest_mark(tilted), width, height)
    assert back == pytest.approx(expected, abs=2)


def test_prepare_records_what_it_did(scans: list[RawPage]) -> None:
    raw = scans[1]
    upright = prepare(raw)
    assert isinstance(upright, PageImage)
    assert upright.rotation_degrees == 0
    turned = prepare(RawPage(page_index=4, image=turn(_image(raw), 90), dpi=raw.dpi, page_label="5"))
    assert isinstance(turned, PageImage)
    assert (turned.page_index, turned.page_label, turned.rotation_degrees) == (4, "5", 270)
    assert turned.skew_degrees == pytest.approx(upright.skew_degrees, abs=0.03)
    assert turned.image.shape == upright.image.shape
    assert np.abs(turned.image.astype(int) - upright.image.astype(int)).mean() < 2


def test_colour_pages_are_turned_as_well(scans: list[RawPage]) -> None:
    colour = np.repeat(turn(_image(scans[1]), 180)[:, :, None], 3, axis=2)
    prepared = prepare(RawPage(page_index=0, image=colour, dpi=200))
    assert isinstance(prepared, PageImage)
    assert prepared.rotation_degrees == 180
    assert prepared.image.shape == colour.shape


def test_a_page_with_a_text_layer_is_not_touched() -> None:
    image = np.asarray(printed_page(SENTENCES, (1654, 2339), 34).rotate(-2, fillcolor=255))
    prepared = prepare(RawPage(page_index=0, image=image, dpi=200, text_lines=()))
    assert isinstance(prepared, PageImage)
    assert (prepared.rotation_degrees, prepared.skew_degrees) == (0, 0.0)
    assert prepared.image is image


def test_a_blank_page_keeps_its_size_in_points() -> None:
    assert prepare(RawPage(page_index=3, image=scan_noise((2200, 1700), 8), dpi=200, page_label="iv")) == BlankPage(
        page_index=3, width_pt=612, height_pt=792, page_label="iv"
    )


def test_deskewing_fills_corners_white() -> None:
    straight = deskew(np.full((400, 300), 90, np.uint8), 4.0)
    assert straight.shape == (400, 300)
    assert straight[0, 0] == 255
    assert straight[200, 150] == 90


def _image(page: RawPage) -> Gray:
    assert page.image is not None
    return page.image


def _largest_mark(image: NDArray[Any]) -> tuple[float, float, float, float]:
    """Pixel box of the largest dark area."""
    stats = cv2.connectedComponentsWithStats((image < 128).astype(np.uint8))[2][1:]
    x, y, width, height, _ = (float(value) for value in stats[stats[:, 4].argmax()])
    return x, y, x + width, y + height
