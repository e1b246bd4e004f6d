"""Pages of a PDF, opened and rendered by MuPDF. Runs in the child process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pymupdf

from ocr2_core.errors import SourceRefused
from ocr2_core.limits import Limits
from ocr2_core.page_raster import POINTS_PER_INCH, PageRaster, PageUnreadable, choose_dpi
from ocr2_core.text_layer import read_text_layer

# above A3, a page of one picture is often a scan whose pixels were taken for points: an A4 sheet of 2480 by 3508 points
_SUSPICIOUS_LONG_SIDE_INCH = 17.0
_FULL_PAGE_SHARE = 0.9
# MuPDF's own errors are no RuntimeErrors; the bindings raise the others
_PARSER_ERRORS = (pymupdf.mupdf.FzErrorBase, RuntimeError, ValueError, SystemError)


class PdfPages:
    """One PDF. `colour` renders RGB, `with_text_layer` brings the lines of sound text layers along."""

    def __init__(self, path: Path, limits: Limits, *, colour: bool = False, with_text_layer: bool = False) -> None:
        pymupdf.TOOLS.mupdf_display_errors(False)
        pymupdf.TOOLS.mupdf_display_warnings(False)
        self._limits = limits
        self._colour = colour
        self._with_text_layer = with_text_layer
        self._document = _open(path)

    def describe(self) -> dict[str, Any]:
        document = self._document
        page_count = _count_pages(document)
        if page_count == 0:
            raise SourceRefused("no_pages", "The PDF has no pages.", "Export it again from the program that made it.")
        if page_count > self._limits.max_page_count:
            raise SourceRefused(
                "too_many_pages",
                f"The PDF has {page_count:,} pages; the limit max_page_count is {self._limits.max_page_count:,}.",
                "Split the file, or raise the limit.",
            )
        self._require_a_page_of_sane_size(page_count)
        title = (document.metadata or {}).get("title") or ""
        return {
            "page_count": page_count,
            "title": " ".join(title.split()) or None,
            "outline": _outline(document, page_count),
            "page_labels": _page_labels(document, page_count),
            "repaired": bool(document.is_repaired),
        }

    def _require_a_page_of_sane_size(self, page_count: int) -> None:
        """Bad pages fail one by one; a file of nothing else is refused, with the first page's trouble as its cause."""
        first_trouble: PageUnreadable | None = None
        for page_index in range(page_count):
            try:
                page = self._load(page_index)
                choose_dpi(*_size_inch(page), self._limits.dpi, self._limits)
                return
            except PageUnreadable as trouble:
                first_trouble = first_trouble or trouble
        if first_trouble is not None:
            raise SourceRefused(
                first_trouble.code,
                f"No page of the PDF can be rendered; page 1: {first_trouble.reason}.",
                "Export it again from the program that made it, or raise the limit named here.",
            )

    def render(self, page_index: int) -> PageRaster:
        pymupdf.TOOLS.reset_mupdf_warnings()
        page = self._load(page_index)
        notes: dict[str, Any] = {}
        try:
            if self._with_text_layer:
                layer = read_text_layer(page)
                if layer.refusal is None:
                    notes["text_lines"] = [line.model_dump() for line in layer.lines]
                    notes["rotation_degrees"] = layer.rotation_degrees
                else:
                    notes["text_layer_refusal"] = layer.refusal
            dpi = choose_dpi(*_size_inch(page), self._wanted_dpi(page), self._limits)
            scale = dpi / POINTS_PER_INCH
            pixmap = page.get_pixmap(
                matrix=pymupdf.Matrix(scale, scale),
                colorspace=pymupdf.csRGB if self._colour else pymupdf.csGRAY,
                alpha=False,
            )
        except _PARSER_ERRORS as error:
            raise _unreadable(error) from error
        warnings = pymupdf.TOOLS.mupdf_warnings()
        if warnings:
            notes["warnings"] = warnings[:500]
        pymupdf.TOOLS.store_shrink(100)
        return PageRaster(pixmap.width, pixmap.height, pixmap.n, dpi, pixmap.samples_mv, notes, pixmap)

    def _load(self, page_index: int) -> pymupdf.Page:
        try:
            page: pymupdf.Page = self._document.load_page(page_index)
        except _PARSER_ERRORS as error:
            raise _unreadable(error) from error
        return page

    def _wanted_dpi(self, page: pymupdf.Page) -> float:
        """The asked resolution, or a large single-picture page's own where that is less: more would add no detail."""
        width_inch, height_inch = _size_inch(page)
        if max(width_inch, height_inch) <= _SUSPICIOUS_LONG_SIDE_INCH:
            return self._limits.dpi
        for image in page.get_image_info():
            box = (pymupdf.Rect(image["bbox"]) * page.rotation_matrix) & page.rect
            if box.is_valid and abs(box) >= _FULL_PAGE_SHARE * abs(page.rect):
                long_side_px = max(image["width"], image["height"])
                own_dpi: float = long_side_px / max(width_inch, height_inch)
                return min(self._limits.dpi, max(own_dpi, self._limits.min_dpi))
        return self._limits.dpi


def _open(path: Path) -> pymupdf.Document:
    pymupdf.TOOLS.reset_mupdf_warnings()
    try:
        document = pymupdf.open(path, filetype="pdf")
    except _PARSER_ERRORS as error:
        said = f"{error}\n{pymupdf.TOOLS.mupdf_warnings()}"
        if _is_memory_trouble(said):
            raise MemoryError from error
        if re.search(r"encrypt|crypt filter|security handler", said, re.IGNORECASE):
            raise SourceRefused(
                "encryption_unsupported",
                "The PDF is encrypted in an unsupported way (certificates, rights management or a damaged key).",
                "Remove the protection in the program that set it, then upload the file again.",
            ) from error
        raise SourceRefused(
            "damaged",
            "The PDF is damaged beyond repair.",
            "Upload it again, or open it in a viewer and save it anew.",
        ) from error
    if document.needs_pass:
        raise SourceRefused(
            "encrypted",
            "The PDF is protected by a password.",
            "Save a copy without the password (`qpdf --password=… --decrypt in.pdf out.pdf`) and upload that.",
        )
    return document


def _count_pages(document: pymupdf.Document) -> int:
    try:
        return int(document.page_count)
    except _PARSER_ERRORS as error:
        if _is_memory_trouble(str(error)):
            raise MemoryError from error
        raise SourceRefused(
            "damaged", "The PDF's page tree is damaged.", "Open it in a viewer and save it anew."
        ) from error


def _outline(document: pymupdf.Document, page_count: int) -> list[dict[str, Any]]:
    """The bookmarks; a broken outline counts as none, for it is evidence only."""
    try:
        entries = document.get_toc(simple=True)
    except (*_PARSER_ERRORS, IndexError, KeyError, TypeError):
        return []
    outline = []
    for level, title, page_number, *_ in entries:
        title = " ".join(str(title).split())
        if title:
            page_index = page_number - 1 if 1 <= page_number <= page_count else None
            outline.append({"level": max(1, int(level)), "title": title, "page_index": page_index})
    return outline


def _page_labels(document: pymupdf.Document, page_count: int) -> list[str]:
    try:
        if not document.get_page_labels():
            return []
        return [document.load_page(page_index).get_label() for page_index in range(page_count)]
    except (*_PARSER_ERRORS, IndexError, KeyError, TypeError):
        return []


def _size_inch(page: pymupdf.Page) -> tuple[float, float]:
    return page.rect.width / POINTS_PER_INCH, page.rect.height / POINTS_PER_INCH


def _unreadable(error: Exception) -> PageUnreadable:
    said = f"{error} {pymupdf.TOOLS.mupdf_warnings()}"
    if _is_memory_trouble(said):
        return PageUnreadable("out_of_memory", "rendering the page needs more memory than memory_limit_bytes allows")
    return PageUnreadable("damaged", f"the page cannot be rendered: {str(error).strip()[:200]}")


def _is_memory_trouble(said: str) -> bool:
    return re.search(r"malloc|calloc|realloc|out of memory", said, re.IGNORECASE) is not None
