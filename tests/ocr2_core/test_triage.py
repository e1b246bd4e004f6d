"""Files are told apart by their content, and bad ones are refused each with its own code and words."""

from __future__ import annotations

import io
from pathlib import Path

import pymupdf
import pytest
from PIL import Image

from ocr2_core.blocks import OutlineEntry
from ocr2_core.errors import SourceRefused
from ocr2_core.triage import Limits, inspect_file
from tests.ocr2_core.source_files import bare_pdf_bytes, png_header_bytes, text_pdf_bytes


def _write(folder: Path, content: bytes, name: str = "manual.pdf") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _refusal(path: Path, limits: Limits | None = None) -> SourceRefused:
    with pytest.raises(SourceRefused) as caught:
        inspect_file(path, limits)
    return caught.value


def test_a_good_pdf_tells_its_outline_labels_and_title(tmp_path: Path) -> None:
    document = pymupdf.open()
    for _ in range(4):
        document.new_page()
    document.set_toc([[1, "First", 1], [2, "  Second\npart ", 3]])
    document.set_page_labels([{"startpage": 0, "style": "r", "firstpagenum": 1}, {"startpage": 2, "style": "D"}])
    document.set_metadata({"title": "User  Manual"})
    inspection = inspect_file(_write(tmp_path, document.tobytes(), "no name at all"))
    assert inspection.media_type == "application/pdf"
    assert inspection.page_count == 4
    assert inspection.title == "User Manual"
    assert inspection.outline == [
        OutlineEntry(level=1, title="First", page_index=0),
        OutlineEntry(level=2, title="Second part", page_index=2),
    ]
    assert inspection.page_labels == ["i", "ii", "1", "2"]
    assert not inspection.repaired


@pytest.mark.parametrize(
    ("image_format", "media_type"), [("TIFF", "image/tiff"), ("PNG", "image/png"), ("JPEG", "image/jpeg")]
)
def test_images_are_known_by_content_not_by_name(tmp_path: Path, image_format: str, media_type: str) -> None:
    content = io.BytesIO()
    Image.new("L", (400, 600), 255).save(content, image_format)
    inspection = inspect_file(_write(tmp_path, content.getvalue(), "wrong.pdf"))
    assert (inspection.media_type, inspection.page_count) == (media_type, 1)


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", "empty", "0 bytes"),
        (b"just some text\n" * 9, "unsupported", "plain text"),
        (b"PK\x03\x04" + b"\0" * 99, "unsupported", "Office document"),
        (b"GIF89a" + b"\0" * 99, "unsupported", "GIF"),
        (b"\x00\x01\x02" * 99, "unsupported", "unknown kind"),
        (b"%PDF-1.7\n" + bytes(range(256)) * 50, "damaged", "beyond repair"),
        (b"\x89PNG\r\n\x1a\n" + b"\xff" * 99, "damaged", "PNG"),
        (b"II*\x00" + b"\xff" * 99, "damaged", "TIFF"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, content: bytes, code: str, words: str) -> None:
    refusal = _refusal(_write(tmp_path, content))
    assert refusal.code == code
    assert words in refusal.cause
    assert refusal.remedy


def test_a_pdf_without_pages_is_refused(tmp_path: Path) -> None:
    assert _refusal(_write(tmp_path, bare_pdf_bytes(0))).code == "no_pages"


def test_a_password_is_asked_for_but_an_owner_password_is_no_obstacle(tmp_path: Path) -> None:
    aes = pymupdf.PDF_ENCRYPT_AES_256
    closed = text_pdf_bytes(2, encryption=aes, user_pw="secret", owner_pw="owner")
    refusal = _refusal(_write(tmp_path, closed))
    assert refusal.code == "encrypted"
    assert "password" in refusal.cause
    restricted = text_pdf_bytes(2, encryption=aes, owner_pw="owner")
    assert inspect_file(_write(tmp_path, restricted)).page_count == 2


def test_an_unknown_encryption_is_told_apart_from_a_password(tmp_path: Path) -> None:
    content = text_pdf_bytes(1).replace(b"/Root", b"/Encrypt<</Filter/RightsManager/V 4/R 4/Length 128>> /Root")
    assert _refusal(_write(tmp_path, content)).code == "encryption_unsupported"


def test_a_truncated_pdf_is_repaired_and_says_so(tmp_path: Path) -> None:
    whole = text_pdf_bytes(5)
    inspection = inspect_file(_write(tmp_path, whole[: whole.index(b"xref")]))
    assert inspection.page_count == 5
    assert inspection.repaired


def test_a_pdf_cut_after_its_header_is_damaged(tmp_path: Path) -> None:
    assert _refusal(_write(tmp_path, text_pdf_bytes(5)[:100])).code == "damaged"


def test_5000_pages_pass_and_5001_do_not(tmp_path: Path) -> None:
    assert inspect_file(_write(tmp_path, bare_pdf_bytes(5000))).page_count == 5000
    refusal = _refusal(_write(tmp_path, bare_pdf_bytes(5001)))
    assert refusal.code == "too_many_pages"
    assert "5,001" in refusal.cause
    assert "max_page_count is 5,000" in refusal.cause


def test_a_file_over_the_byte_limit_is_refused_unopened(tmp_path: Path) -> None:
    refusal = _refusal(_write(tmp_path, text_pdf_bytes(1)), Limits(max_file_bytes=100))
    assert refusal.code == "too_large"
    assert "max_file_bytes is 100" in refusal.cause


def test_a_png_that_claims_60000_by_60000_pixels_is_a_bomb(tmp_path: Path) -> None:
    refusal = _refusal(_write(tmp_path, png_header_bytes(60_000, 60_000)))
    assert refusal.code == "pixel_bomb"
    assert "60,000 by 60,000" in refusal.cause


def test_a_pdf_of_giant_pages_only_is_a_bomb(tmp_path: Path) -> None:
    refusal = _refusal(_write(tmp_path, bare_pdf_bytes(3, "0 0 14400 14400")), Limits(max_page_pixels=10_000_000))
    assert refusal.code == "pixel_bomb"
    assert "200 by 200 inches" in refusal.cause


def test_a_parser_that_needs_too_long_is_ended(tmp_path: Path) -> None:
    refusal = _refusal(_write(tmp_path, text_pdf_bytes(1)), Limits(inspect_timeout_s=0.001))
    assert refusal.code == "timed_out"
    assert "0.001 s" in refusal.cause


def test_a_missing_file_is_no_refusal(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        inspect_file(tmp_path / "nowhere.pdf")
