"""What kind of file some bytes are, judged by their beginning and never by a name."""

from __future__ import annotations

from typing import Literal

MediaType = Literal["application/pdf", "image/tiff", "image/png", "image/jpeg"]

# PDF readers accept the header anywhere in the first kilobyte (ISO 32000-1, annex H, implementation note 13)
_PDF_HEADER_WITHIN_BYTES = 1024
SNIFF_BYTES = 4096

_SUPPORTED: tuple[tuple[bytes, MediaType], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"II+\x00", "image/tiff"),
    (b"MM\x00+", "image/tiff"),
)
_UNSUPPORTED: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a ZIP archive or an Office document (docx, xlsx, pptx, odt, epub)"),
    (b"\xd0\xcf\x11\xe0", "an old Office document (doc, xls, ppt)"),
    (b"GIF8", "a GIF image"),
    (b"BM", "a BMP image"),
    (b"%!PS", "a PostScript file"),
    (b"AT&TFORM", "a DjVu file"),
    (b"\x00\x00\x00\x0cjP", "a JPEG 2000 image"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 image"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"{\\rtf", "an RTF document"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)


def find_media_type(head: bytes) -> MediaType | None:
    """The supported media type of a file whose first SNIFF_BYTES are `head`, or None."""
    for magic, media_type in _SUPPORTED:
        if head.startswith(magic):
            return media_type
    if b"%PDF-" in head[:_PDF_HEADER_WITHIN_BYTES]:
        return "application/pdf"
    return None


def describe_unsupported(head: bytes) -> str:
    """A guess, in words for the user, at what an unsupported file is."""
    for magic, words in _UNSUPPORTED:
        if head.startswith(magic):
            return words
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "a WebP image"
    if head[4:8] == b"ftyp":
        return "a HEIF/AVIF image or a video"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    if start.startswith(b"<?xml"):
        return "an XML file"
    if _is_text(head):
        return "plain text"
    return "of an unknown kind"


def _is_text(head: bytes) -> bool:
    if b"\x00" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # a multi-byte letter may be cut by the end of the sample
        return error.start >= len(head) - 3
    return True
