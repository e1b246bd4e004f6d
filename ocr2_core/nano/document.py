"""A document of nano pages as a PDF of page images, and its text: `python -m ocr2_core.nano.document OUT.pdf`.

The images lie at 72 dpi, one pixel a point, without a text layer: a scan, to everyone who reads it.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterable
from pathlib import Path

import pymupdf
from PIL import Image

from ocr2_core.nano.pages import PAGE_SIDE_PX, NanoPage, draw_document
from ocr2_core.nano.vocabulary import page_text


def write_pdf(pages: Iterable[NanoPage], path: Path) -> None:
    """Write the pages' images."""
    with pymupdf.open() as pdf:
        for page in pages:
            stream = io.BytesIO()
            Image.fromarray(page.image).save(stream, "png")
            sheet = pdf.new_page(width=PAGE_SIDE_PX, height=PAGE_SIDE_PX)
            sheet.insert_image(sheet.rect, stream=stream.getvalue())
        pdf.save(path, garbage=3, deflate=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--pages", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    pages = list(draw_document(arguments.seed, arguments.pages, split="test"))
    write_pdf(pages, arguments.path)
    text = "\n\f\n".join(page_text(page) for page in pages) + "\n"
    arguments.path.with_suffix(".txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
