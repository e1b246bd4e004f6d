"""Pages come out of the child process with the right pixels, and bad pages cost only themselves."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from PIL import Image

from ocr2_core.rendering import RawPage, open_source
from ocr2_core.triage import Limits
from tests.ocr2_core.source_files import printed_page, text_pdf_bytes


def _render(path: Path, limits: Limits | None = None, **options: Any) -> list[RawPage]:
    with open_source(path, limits, **options) as source:
        return list(source.pages())


def _pixels(page: RawPage) -> np.ndarray[Any, np.dtype[np.uint8]]:
    assert page.failure is None
    assert page.image is not None
    return page.image


def test_a_pdf_page_is_rendered_gray_at_200_dpi(tmp_path: Path) -> None:
    path = tmp_path / "manual.pdf"
    path.write_bytes(text_pdf_bytes(2))
    pages = _render(path)
    assert [page.page_index for page in pages] == [0, 1]
    assert all(page.dpi == 200 for page in pages)
    image = _pixels(pages[0])
    assert image.shape == (2339, 1653)
    # the sentence stands at 72 pt from the left, its baseline 100 pt from the top
    ys, xs = np.nonzero(image < 128)
    assert 199 <= xs.min() <= 204
    assert 250 <= ys.min() < ys.max() <= 287


def test_colour_is_kept_when_asked_for(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page(width=100, height=100)
    page.draw_rect(page.rect, fill=(1, 0, 0), color=None)
    document.save(tmp_path / "red.pdf")
    (colour,) = _render(tmp_path / "red.pdf", colour=True)
    assert _pixels(colour).shape == (278, 278, 3)
    assert _pixels(colour)[100, 100].tolist() == [255, 0, 0]
    (gray,) = _render(tmp_path / "red.pdf")
    assert _pixels(gray).shape == (278, 278)


def test_chosen_pages_come_in_the_order_asked(tmp_path: Path) -> None:
    path = tmp_path / "manual.pdf"
    path.write_bytes(text_pdf_bytes(6))
    with open_source(path) as source:
        assert [page.page_index for page in source.pages([4, 1, 5])] == [4, 1, 5]
        with pytest.raises(IndexError, match="page_index 6"):
            next(source.pages([6]))


@pytest.mark.parametrize("mode", ["1", "L", "P", "I;16", "CMYK", "RGBA", "LA", "F"])
def test_every_pixel_kind_of_tiff_becomes_black_on_white(tmp_path: Path, mode: str) -> None:
    page = printed_page(["Torque the bolts to 12 Nm."])
    if mode == "I;16":
        stored = Image.fromarray(np.asarray(page).astype(np.uint16) * 257)
    elif mode == "F":
        stored = Image.fromarray(np.asarray(page).astype(np.float32) / 255)
    elif mode in ("RGBA", "LA"):
        # ink on nothing: what shows through must be white paper
        ink = Image.new("L", page.size, 0)
        alpha = Image.fromarray(255 - np.asarray(page))
        stored = Image.merge("LA", (ink, alpha)).convert(mode)
    else:
        stored = page.convert("RGB").convert(mode) if mode == "CMYK" else page.convert(mode)
    stored.save(tmp_path / "page.tiff", dpi=(100, 100))
    (raw,) = _render(tmp_path / "page.tiff")
    image = _pixels(raw)
    assert raw.dpi == 100
    assert image.shape == (1169, 827)
    assert image[5, 5] >= 250
    expected = np.asarray(page) < 128
    assert ((image < 128) != expected).mean() < 0.002


def test_pages_of_one_tiff_may_differ_in_kind(tmp_path: Path) -> None:
    first = printed_page(["one"]).convert("1")
    rest = [printed_page(["two"]), printed_page(["three"]).convert("RGB")]
    first.save(tmp_path / "fax.tiff", save_all=True, append_images=rest, dpi=(100, 100))
    pages = _render(tmp_path / "fax.tiff")
    assert [_pixels(page).shape for page in pages] == [(1169, 827)] * 3
    assert len({_pixels(page).tobytes() for page in pages}) == 3


def test_a_group_4_fax_with_unequal_resolution_gets_square_pixels(tmp_path: Path) -> None:
    Image.new("1", (1728, 1078), 1).save(tmp_path / "fax.tiff", compression="group4", dpi=(204, 98))
    (raw,) = _render(tmp_path / "fax.tiff")
    assert raw.dpi == 200
    # 1728 / 204 by 1078 / 98 inches
    assert _pixels(raw).shape == (2200, 1694)


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_the_exif_orientation_of_a_photo_is_applied(tmp_path: Path, orientation: int) -> None:
    upright = Image.new("L", (600, 800), 255)
    upright.paste(0, (0, 0, 200, 100))
    stored = {
        3: upright.transpose(Image.Transpose.ROTATE_180),
        6: upright.transpose(Image.Transpose.ROTATE_90),
        8: upright.transpose(Image.Transpose.ROTATE_270),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "photo.jpg", exif=exif, dpi=(100, 100), quality=95)
    (raw,) = _render(tmp_path / "photo.jpg")
    image = _pixels(raw)
    assert image.shape == (800, 600)
    assert image[50, 100] < 20
    assert image[750, 500] > 235


def test_a_fine_scan_is_reduced_and_a_senseless_resolution_ignored(tmp_path: Path) -> None:
    Image.new("L", (4960, 7016), 255).save(tmp_path / "fine.png", dpi=(600, 600))
    (fine,) = _render(tmp_path / "fine.png")
    assert (fine.dpi, _pixels(fine).shape) == (200, (2339, 1653))
    # 3000 x 4000 pixels at 72 dpi would be a sheet of 56 inches
    Image.new("L", (3000, 4000), 255).save(tmp_path / "camera.jpg", dpi=(72, 72))
    (camera,) = _render(tmp_path / "camera.jpg")
    assert (camera.dpi, _pixels(camera).shape) == (200, (2338, 1754))


def test_a_scan_whose_pixels_were_taken_for_points_is_not_blown_up(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page(width=2480, height=3508)
    content = pymupdf.Pixmap(pymupdf.csGRAY, pymupdf.IRect(0, 0, 2480, 3508), False)
    content.clear_with(255)
    page.insert_image(page.rect, pixmap=content)
    document.save(tmp_path / "points.pdf")
    (raw,) = _render(tmp_path / "points.pdf")
    assert (raw.dpi, _pixels(raw).shape) == (72, (3508, 2480))


def test_a_giant_page_is_rendered_coarser_and_a_monstrous_one_fails_alone(tmp_path: Path) -> None:
    document = pymupdf.open()
    document.new_page(width=595, height=842)
    document.new_page(width=4000, height=4000)
    document.new_page(width=20_000, height=20_000)
    document.new_page(width=595, height=842)
    document.save(tmp_path / "plan.pdf")
    pages = _render(tmp_path / "plan.pdf", Limits(max_page_pixels=30_000_000))
    assert [page.failure.code if page.failure else None for page in pages] == [None, None, "pixel_bomb", None]
    assert pages[1].dpi == 98
    assert _pixels(pages[1]).size <= 30_000_000
    assert pages[2].failure is not None
    assert "278 by 278 inches" in pages[2].failure.reason


def test_a_broken_image_page_fails_alone(tmp_path: Path) -> None:
    printed_page(["one"]).save(tmp_path / "whole.png")
    content = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(content[: len(content) // 2])
    (raw,) = _render(tmp_path / "cut.png")
    assert raw.failure is not None
    assert raw.failure.code == "damaged"


def test_memory_of_the_child_is_limited(tmp_path: Path) -> None:
    # 144 MB when unpacked, a few kilobytes in the file
    Image.new("L", (12_000, 12_000), 200).save(tmp_path / "bomb.png", compress_level=1)
    document = pymupdf.open()
    page = document.new_page()
    page.insert_image(page.rect, filename=tmp_path / "bomb.png")
    document.new_page().insert_text((72, 72), "still here")
    document.save(tmp_path / "bomb.pdf")
    pages = _render(tmp_path / "bomb.pdf", Limits(memory_limit_bytes=64 * 1024**2))
    first, second = pages
    assert first.failure is not None
    assert first.failure.code == "out_of_memory"
    assert _pixels(second).min() < 50


def test_a_child_killed_once_costs_no_page(tmp_path: Path) -> None:
    path = tmp_path / "manual.pdf"
    path.write_bytes(text_pdf_bytes(12))
    with open_source(path) as source:
        pages = source.pages()
        indices = [next(pages).page_index for _ in range(4)]
        (pid,) = source.worker_pids
        os.kill(pid, signal.SIGKILL)
        rest = list(pages)
    assert indices + [page.page_index for page in rest] == list(range(12))
    assert all(page.failure is None for page in rest)


def test_a_page_that_kills_every_child_fails_and_the_next_ones_come(tmp_path: Path) -> None:
    path = tmp_path / "manual.pdf"
    path.write_bytes(text_pdf_bytes(4))
    with open_source(path) as source:
        start = source._start

        def start_and_kill(page_indices: list[int]) -> Any:
            worker = start(page_indices)
            if page_indices[0] == 1:
                os.kill(worker.pid, signal.SIGSEGV)
            return worker

        source._start = start_and_kill  # type: ignore[method-assign]
        taken = [page.page_index for page in source.pages([0])]
        pages = list(source.pages([1, 2, 3]))
    assert taken == [0]
    assert [page.failure.code if page.failure else None for page in pages] == ["crashed", None, None]
    assert pages[0].failure is not None
    assert "SIGSEGV" in pages[0].failure.reason


def test_pages_that_take_too_long_fail_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "manual.pdf"
    path.write_bytes(text_pdf_bytes(2))
    with open_source(path) as source:
        inspection = source.inspection
    pages = _render(path, Limits(render_timeout_s=0.001), inspection=inspection)
    assert [page.failure.code if page.failure else None for page in pages] == ["timed_out", "timed_out"]


def test_leaving_the_source_ends_its_children(tmp_path: Path) -> None:
    path = tmp_path / "manual.pdf"
    path.write_bytes(text_pdf_bytes(8))
    with open_source(path) as source:
        pages = source.pages()
        next(pages)
        (pid,) = source.worker_pids
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_child_is_given_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCR2KB_SECRET_KEY", "hush")
    path = tmp_path / "manual.pdf"
    path.write_bytes(text_pdf_bytes(3))
    with open_source(path) as source:
        pages = source.pages()
        next(pages)
        (pid,) = source.worker_pids
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"hush" not in environment
