"""Makes the good, odd and hostile files of the source tests."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pymupdf
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def text_pdf_bytes(page_count: int, **save_options: object) -> bytes:
    """A born-digital PDF, one sentence a page; `save_options` go to pymupdf's tobytes."""
    document = pymupdf.open()
    for index in range(page_count):
        document.new_page(width=595, height=842).insert_text((72, 100), f"This is page {index + 1} of the manual.")
    return document.tobytes(**save_options)


def bare_pdf_bytes(page_count: int, media_box: str = "0 0 595 842") -> bytes:
    """A PDF written by hand: pages without content, as many and as large as one likes."""
    first = 3
    kids = " ".join(f"{first + index} 0 R" for index in range(page_count))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {page_count}/MediaBox[{media_box}]>>",
        *["<</Type/Page/Parent 2 0 R>>"] * page_count,
    ]
    output = io.BytesIO()
    output.write(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(output.tell())
        output.write(f"{number} 0 obj{body}endobj\n".encode())
    xref = output.tell()
    output.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    output.write("".join(f"{offset:010d} 00000 n \n" for offset in offsets).encode())
    output.write(f"trailer<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{xref}\n%%EOF\n".encode())
    return output.getvalue()


def png_header_bytes(width: int, height: int) -> bytes:
    """A PNG whose header claims a size and whose data are a few bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")
    )


def printed_page(lines: list[str], size: tuple[int, int] = (827, 1169), font_px: int = 20) -> Image.Image:
    """A white gray page at 100 dpi with lines of text from its top left."""
    image = Image.new("L", size, 255)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(font_px)
    for index, line in enumerate(lines):
        draw.text((90, 90 + index * font_px * 1.6), line, fill=0, font=font)
    return image


def scan_noise(shape: tuple[int, int], seed: int, *, paper: float = 240.0, sigma: float = 6.0) -> NDArray[np.uint8]:
    """A blank sheet as a scanner sees it: shaded paper, sensor noise, specks of one or two pixels."""
    random = np.random.default_rng(seed)
    height, width = shape
    sheet = paper - np.linspace(0, 20, width)[None, :] + random.normal(0, sigma, shape)
    count = int(25 * height * width / 1e6)
    for y, x in zip(random.integers(0, height - 2, count), random.integers(0, width - 2, count), strict=True):
        sheet[y : y + random.integers(1, 3), x : x + random.integers(1, 3)] = 60
    return sheet.clip(0, 255).astype(np.uint8)
