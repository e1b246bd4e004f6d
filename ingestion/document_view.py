"""A document for eyes: page images with the boxes of what was found on them, and the recovered tree beside them.

`write_view` writes `view.html` and, beside it, `pages/0001.jpg` and so on; the page needs nothing else. Every heading
tells its evidence, every page its state in the ledger, every box its label and its place in reading order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ocr2_core.geometry import NORM_MAX, BBoxNorm, from_pixels
from ocr2_core.ledger import LedgerRow, PageStatus

if TYPE_CHECKING:
    import numpy as np
    from docling_core.types.doc.document import DoclingDocument
    from numpy.typing import NDArray

    from structure_recovery.report import HeadingReport, StructureReport

MAX_IMAGE_SIDE_PX = 1200
_JPEG_QUALITY = 70
_TOOLTIP_CHARACTERS = 160
_STYLE = """
body { margin: 0; font: 14px/1.45 system-ui, sans-serif; color: #1c2733; display: grid;
grid-template-columns: minmax(18rem, 26rem) 1fr; height: 100vh }
nav, main { overflow: auto; padding: 1rem } nav { border-right: 1px solid #d8dee4; background: #f6f8fa }
main { background: #e6eaee } h1 { font-size: 1.1rem; margin: 0 0 .5rem } h2 { font-size: 1rem; margin: 1rem 0 .3rem }
details > summary { cursor: pointer } nav ol { list-style: none; margin: 0; padding: 0 }
nav li { padding: .1rem 0; overflow-wrap: anywhere } nav a { color: inherit; text-decoration: none }
nav a:hover { text-decoration: underline } .evidence { color: #57606a; font-size: 12px; margin: .1rem 0 .4rem 1rem }
.doubtful { background: #fff3c4 } .number { color: #57606a; float: right; padding-left: .5rem }
.page { position: relative; margin: 0 auto 1.5rem; max-width: 60rem; background: #fff;
box-shadow: 0 1px 4px rgb(0 0 0 / 25%) } .page img { width: 100%; display: block }
.missing { aspect-ratio: 1 / 1.3; display: grid; place-items: center; color: #b42318 }
.page header { padding: .2rem .6rem; font-size: 12px; background: #fff; border-bottom: 1px solid #d8dee4 }
.failed { color: #b42318; font-weight: 600 } .sheet { position: relative }
.box { position: absolute; border: 1.5px solid var(--colour); box-sizing: border-box; --colour: #4c78a8 }
.box:hover, .box:target { background: color-mix(in srgb, var(--colour) 20%, transparent) }
.box b { position: absolute; top: -1px; right: 100%; font: 10px/1.2 system-ui, sans-serif; color: #fff;
background: var(--colour); padding: 0 2px } .box.title, .box.section_header { --colour: #d62728 }
.box.list_item { --colour: #2ca02c } .box.table { --colour: #9467bd } .box.picture { --colour: #ff7f0e }
.box.caption { --colour: #e377c2 } .box.code { --colour: #17a2b8 } .box.footnote { --colour: #8c6d31 }
.box.furniture { --colour: #7f7f7f; border-style: dashed } .plain .box { display: none }
"""
_SCRIPT = "document.getElementById('boxes').onchange = e => document.body.classList.toggle('plain', !e.target.checked)"


@dataclass(frozen=True, slots=True)
class Box:
    """One box of a page: `bbox_norm` on the upright page, `order` its number in reading order on that page (0: none, it
    is furniture), `anchor` its id for headings."""

    label: str
    bbox_norm: BBoxNorm
    text: str
    order: int
    anchor: str = ""


def write_view(
    folder: Path,
    document: DoclingDocument,
    report: StructureReport,
    ledger: Sequence[LedgerRow],
    images: Iterable[tuple[int, NDArray[np.uint8]]],
) -> Path:
    """Write the view into `folder`; the path of its HTML file. `images`: (page number, upright gray or RGB pixels); a
    page without an image is shown as an empty sheet with its boxes."""
    (folder / "pages").mkdir(parents=True, exist_ok=True)
    files: dict[int, str] = {}
    for page_number, pixels in images:
        files[page_number] = f"pages/{page_number:04}.jpg"
        _write_image(folder / files[page_number], pixels)
    path = folder / "view.html"
    path.write_text("\n".join(_html(document, report, ledger, files)), encoding="utf-8")
    return path


def boxes_of(document: DoclingDocument) -> dict[int, list[Box]]:
    """The boxes of each page (by page number), the body's in reading order, then the furniture's."""
    from docling_core.types.doc import ContentLayer, DocItem, SectionHeaderItem, TableItem, TextItem

    boxes: dict[int, list[Box]] = defaultdict(list)
    counts: dict[int, int] = defaultdict(int)
    heading_number = 0
    layers = {ContentLayer.BODY, ContentLayer.FURNITURE}
    for item, _ in document.iterate_items(included_content_layers=layers, traverse_pictures=True):
        if not isinstance(item, DocItem):
            continue
        anchor = ""
        if isinstance(item, SectionHeaderItem):
            heading_number += 1
            anchor = f"h{heading_number}"
        is_body = item.content_layer is ContentLayer.BODY
        label = item.label.value if is_body else "furniture"
        for place in item.prov:
            page = document.pages[place.page_no].size
            counts[place.page_no] += is_body
            text = item.text[slice(*place.charspan)] if isinstance(item, TextItem) else ""
            if isinstance(item, TableItem):
                text = f"{item.data.num_rows} × {item.data.num_cols}"
            bbox = place.bbox
            bbox_norm = from_pixels((bbox.l, bbox.t, bbox.r, bbox.b), page.width, page.height)
            order = counts[place.page_no] if is_body else 0
            boxes[place.page_no].append(Box(label, bbox_norm, text, order, anchor))
            anchor = ""
    return boxes


def _write_image(path: Path, pixels: NDArray[np.uint8]) -> None:
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.thumbnail((MAX_IMAGE_SIDE_PX, MAX_IMAGE_SIDE_PX))
    picture.save(path, quality=_JPEG_QUALITY)


def _html(
    document: DoclingDocument, report: StructureReport, ledger: Sequence[LedgerRow], files: Mapping[int, str]
) -> Iterator[str]:
    name = escape(report.title or document.name)
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title><style>{_STYLE}</style>'
    yield f"<nav><h1>{name}</h1><label><input type=checkbox id=boxes checked> boxes</label>"
    yield from _summary(report, ledger)
    yield "<h2>Structure</h2><ol>"
    for number, heading in enumerate(report.headings, start=1):
        yield _heading(heading, number)
    yield "</ol></nav><main>"
    boxes = boxes_of(document)
    rows = {row.page_index + 1: row for row in ledger}
    for page_number in sorted({*document.pages, *rows}):
        yield _page(page_number, rows.get(page_number), files.get(page_number), boxes.get(page_number, []))
    yield f"</main><script>{_SCRIPT}</script></html>"


def _summary(report: StructureReport, ledger: Sequence[LedgerRow]) -> Iterator[str]:
    states = ", ".join(
        f"{count} {status.value}" for status in PageStatus if (count := sum(row.status is status for row in ledger))
    )
    contents = report.contents
    found = f"{contents.matched_count} of {contents.entry_count} entries found" if contents.entry_count else "none"
    confidence = f"{report.confidence:.2f}" if report.confidence is not None else "none"
    facts = (
        f"{report.page_count} pages ({states})",
        f"{len(report.headings)} headings, confidence {confidence}",
        f"printed contents: {found}",
        f"{report.joined_paragraph_count} paragraphs and {report.joined_table_count} tables joined over breaks",
        f"{report.furniture_count} headers and footers set aside, {report.reordered_count} blocks moved",
    )
    yield "<ul>" + "".join(f"<li>{escape(fact)}" for fact in facts) + "</ul>"


def _heading(heading: HeadingReport, number: int) -> str:
    evidence = "".join(
        f"<br>{each.weight:+.1f} {escape(each.name)}" + (f": {escape(each.detail)}" if each.detail else "")
        for each in heading.evidence
    )
    votes = ", ".join(f"{escape(name)} {level}" for name, level in heading.level_votes.items())
    doubtful = " class=doubtful" if heading.confidence < 0.6 else ""
    return (
        f'<li style="padding-left:{heading.level - 1}rem"><details{doubtful}><summary>'
        f"<span class=number>{heading.page_number}</span>"
        f'<a href="#h{number}">{escape(heading.text)}</a></summary><div class=evidence>level {heading.level}, '
        f"confidence {heading.confidence:.2f}{f'; votes: {votes}' if votes else ''}{evidence}</div></details>"
    )


def _page(page_number: int, row: LedgerRow | None, file: str | None, boxes: Sequence[Box]) -> str:
    state = "not in the ledger" if row is None else f"{row.status.value}, {row.engine}"
    if row is not None and row.reason:
        state += f": {row.reason}"
    failed = " class=failed" if row is None or row.status is PageStatus.FAILED else ""
    picture = (
        f'<img loading=lazy src="{file}" alt="page {page_number}">' if file else "<div class=missing>no image</div>"
    )
    drawn = "".join(map(_box, boxes))
    head = f"<header>page {page_number} <span{failed}>{escape(state)}</span></header>"
    return f'<section class=page id="page{page_number}">{head}<div class=sheet>{picture}{drawn}</div></section>'


def _box(box: Box) -> str:
    left, top, right, bottom = (100 * value / NORM_MAX for value in box.bbox_norm)
    anchor = f' id="{box.anchor}"' if box.anchor else ""
    order = f"<b>{box.order}</b>" if box.order else ""
    text = box.text if len(box.text) <= _TOOLTIP_CHARACTERS else box.text[: _TOOLTIP_CHARACTERS - 1] + "…"
    corners = ",".join(f"{value:.0f}" for value in box.bbox_norm)
    tooltip = escape(f"{box.label}: {text}\n--box {corners}", quote=True)
    place = f"left:{left:.2f}%;top:{top:.2f}%;width:{right - left:.2f}%;height:{bottom - top:.2f}%"
    return f'<div class="box {box.label}"{anchor} title="{tooltip}" style="{place}">{order}</div>'
