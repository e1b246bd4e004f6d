"""A recovered document as Markdown: level n has n `#`, tables as pipes (HTML where cells span), no furniture."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docling_core.types.doc import DoclingDocument, NodeItem
    from docling_core.types.doc.document import TableData


def to_markdown(document: DoclingDocument) -> str:
    """Markdown of the body layer, ending in a line break; empty text for an empty document."""
    blocks: list[str] = []
    in_list = False
    for text, is_list_item in _blocks(document):
        if is_list_item and in_list:
            blocks[-1] += "\n" + text
        else:
            blocks.append(text)
        in_list = is_list_item
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _blocks(document: DoclingDocument) -> Iterator[tuple[str, bool]]:
    from docling_core.types.doc import (
        CodeItem,
        FormulaItem,
        ListItem,
        PictureItem,
        SectionHeaderItem,
        TableItem,
        TextItem,
        TitleItem,
    )

    captions = {ref.cref for item in (*document.tables, *document.pictures) for ref in item.captions}
    for item, _ in document.iterate_items():
        if isinstance(item, TitleItem):
            yield f"# {_line(item.text)}", False
        elif isinstance(item, SectionHeaderItem):
            yield f"{'#' * min(item.level, 6)} {_line(item.text)}", False
        elif isinstance(item, CodeItem):
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", item.text)), default=0))
            yield f"{fence}\n{item.text}\n{fence}", False
        elif isinstance(item, FormulaItem):
            yield f"$$\n{item.text}\n$$", False
        elif isinstance(item, ListItem):
            marker = item.marker if item.enumerated and re.fullmatch(r"[0-9]+[.)]", item.marker) else "-"
            shown = f"{item.marker} " if item.enumerated and marker == "-" else ""
            indent = "    " * _list_depth(item, document)
            yield f"{indent}{marker} {shown}{_line(item.text)}", True
        elif isinstance(item, TableItem):
            yield from ((caption, False) for caption in _captions(item, document))
            yield _table(item.data), False
        elif isinstance(item, PictureItem):
            caption = " ".join(_captions(item, document))
            yield f"![{caption}]()" if caption else "<!-- picture -->", False
        elif isinstance(item, TextItem) and item.self_ref not in captions:
            yield _escape(_line(item.text)), False


def _list_depth(item: NodeItem, document: DoclingDocument) -> int:
    """How many lists the item's own list lies in."""
    from docling_core.types.doc import ListItem

    depth = 0
    node: NodeItem | None = item
    while node is not None and node.parent is not None:
        node = node.parent.resolve(document)
        depth += isinstance(node, ListItem)
    return depth


def _captions(item: NodeItem, document: DoclingDocument) -> list[str]:
    from docling_core.types.doc import PictureItem, TableItem, TextItem

    assert isinstance(item, TableItem | PictureItem)
    found = [ref.resolve(document) for ref in item.captions]
    return [_line(caption.text) for caption in found if isinstance(caption, TextItem)]


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _escape(text: str) -> str:
    """A paragraph that happens to begin like Markdown (a heading, a quote, a fence) stays a paragraph."""
    return "\\" + text if re.match(r"(#{1,6}\s|>|```|~~~|[-*+]\s)", text) else text


def _table(data: TableData) -> str:
    if any(cell.row_span > 1 or cell.col_span > 1 for cell in data.table_cells):
        return _html_table(data)
    rows = [[""] * data.num_cols for _ in range(data.num_rows)]
    for cell in data.table_cells:
        rows[cell.start_row_offset_idx][cell.start_col_offset_idx] = _line(cell.text).replace("|", "\\|")
    if not rows:
        return "<!-- table -->"
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * data.num_cols, *lines[1:]])


def _html_table(data: TableData) -> str:
    lines = ["<table>"]
    for row in range(data.num_rows):
        cells = sorted(
            (cell for cell in data.table_cells if cell.start_row_offset_idx == row),
            key=lambda cell: cell.start_col_offset_idx,
        )
        parts = []
        for cell in cells:
            tag = "th" if cell.column_header else "td"
            spans = (f' rowspan="{cell.row_span}"' if cell.row_span > 1 else "") + (
                f' colspan="{cell.col_span}"' if cell.col_span > 1 else ""
            )
            parts.append(f"<{tag}{spans}>{html.escape(_line(cell.text), quote=False)}</{tag}>")
        lines.append(f"<tr>{''.join(parts)}</tr>")
    return "\n".join([*lines, "</table>"])
