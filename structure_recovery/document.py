"""Build the DoclingDocument: body in reading order, furniture in its own layer, every page and box kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocr2_core.blocks import BlockLabel, PageBlocks
from ocr2_core.geometry import NORM_MAX
from structure_recovery.contents import Contents
from structure_recovery.elements import Piece
from structure_recovery.joining import Element, split_marker
from structure_recovery.tables import Cell, Grid, to_table_data

if TYPE_CHECKING:
    from docling_core.types.doc import DocItemLabel, DoclingDocument, GroupItem, ListItem, ProvenanceItem


@dataclass(frozen=True)
class Parts:
    """What a document is made of."""

    body: Sequence[Element]
    furniture: Sequence[Element]
    contents: Contents


def build_document(pages: Sequence[PageBlocks], parts: Parts, name: str) -> DoclingDocument:
    """The document of `parts`. Boxes are in points on the upright page, origin top left, the deskewing undone.

    The printed contents become tables labelled document_index in the furniture layer: they repeat the headings, and in
    the body they would be found by every search.
    """
    from docling_core.types.doc import DoclingDocument

    return _Builder(DoclingDocument(name=name), pages).build(parts)


class _Builder:
    def __init__(self, document: DoclingDocument, pages: Sequence[PageBlocks]) -> None:
        self._document = document
        self._pages = {page.page_index: page for page in pages}
        # the open list and those it lies in, each with its last item
        self._lists: list[tuple[GroupItem, ListItem | None]] = []
        self._note: tuple[str, GroupItem] | None = None

    def build(self, parts: Parts) -> DoclingDocument:
        from docling_core.types.doc.base import Size

        for page in self._pages.values():
            self._document.add_page(page_no=page.page_number, size=Size(width=page.width_pt, height=page.height_pt))
        for element in parts.body:
            self._add(element)
        for element in parts.furniture:
            self._add_furniture(element)
        self._add_contents(parts.contents)
        return self._document

    def _add(self, element: Element) -> None:
        from docling_core.types.doc import DocItemLabel

        document, prov = self._document, self._provenance(element)
        parent = self._note_group(element.note)
        if element.label is BlockLabel.LIST_ITEM and element.level is None:
            self._add_list_item(element, prov, parent)
            return
        self._lists.clear()
        if element.label is BlockLabel.TITLE:
            document.add_title(element.text).prov = prov
        elif element.level is not None:
            document.add_heading(element.text, level=element.level).prov = prov
        elif element.label is BlockLabel.TABLE:
            prov = [self._box(piece, (0, 0)) for piece in element.pieces]
            table = document.add_table(to_table_data(element.grid or Grid()))
            table.prov = prov
            self._add_captions(element, table)
        elif element.label is BlockLabel.PICTURE:
            picture = document.add_picture()
            picture.prov = [self._box(piece, (0, 0)) for piece in element.pieces]
            self._add_captions(element, picture)
            if element.text:
                # Words inside a picture follow it in the body: most readers of a document skip a picture's children.
                document.add_text(DocItemLabel.TEXT, element.text).prov = prov
        elif element.label is BlockLabel.CODE:
            document.add_code(element.text).prov = prov
        elif element.label is BlockLabel.FORMULA:
            document.add_formula(element.text).prov = prov
        elif element.text:
            document.add_text(_text_label(element.label), element.text, parent=parent).prov = prov

    def _note_group(self, name: str) -> GroupItem | None:
        """The group of the note that an element belongs to, new where it is its first; None for no note."""
        from docling_core.types.doc import GroupLabel

        if not name:
            self._note = None
        elif self._note is None or self._note[0] != name:
            word, _, number = name.rpartition(" ")
            group = self._document.add_group(label=GroupLabel.UNSPECIFIED, name=f"note {number}: {word}")
            self._note = (name, group)
        return self._note[1] if self._note else None

    def _add_list_item(self, element: Element, prov: list[ProvenanceItem], parent: GroupItem | None) -> None:
        del self._lists[element.depth + 1 :]
        while len(self._lists) <= element.depth:
            above = self._lists[-1][1] if self._lists else parent
            self._lists.append((self._document.add_list_group(name="list", parent=above), None))
        marker, text = split_marker(element.text)
        moved = len(element.text) - len(text)
        for item in prov:
            item.charspan = (max(item.charspan[0] - moved, 0), max(item.charspan[1] - moved, 0))
        added = self._document.add_list_item(
            text,
            enumerated=any(character.isalnum() for character in marker),
            marker=marker or None,
            orig=element.text,
            parent=self._lists[-1][0],
        )
        added.prov = prov
        self._lists[-1] = (self._lists[-1][0], added)

    def _add_captions(self, element: Element, item: object) -> None:
        from docling_core.types.doc import DocItemLabel, PictureItem, TableItem

        assert isinstance(item, TableItem | PictureItem)
        for caption in element.captions:
            added = self._document.add_text(DocItemLabel.CAPTION, caption.text, parent=item)
            added.prov = self._provenance(caption)
            item.captions.append(added.get_ref())

    def _add_furniture(self, element: Element) -> None:
        from docling_core.types.doc import ContentLayer, DocItemLabel

        if not element.text:
            return
        in_upper_half = element.pieces[0].y_centre < NORM_MAX / 2
        label = DocItemLabel.PAGE_HEADER if in_upper_half else DocItemLabel.PAGE_FOOTER
        added = self._document.add_text(label, element.text, content_layer=ContentLayer.FURNITURE)
        added.prov = self._provenance(element)

    def _add_contents(self, contents: Contents) -> None:
        """One document_index a contents page: rows of title and printed page label, boxes of the pieces read."""
        from docling_core.types.doc import ContentLayer, DocItemLabel

        for page_index in contents.page_indexes:
            pieces = sorted(
                (piece for piece in contents.pieces if piece.page_index == page_index), key=lambda piece: piece.order
            )
            if not pieces:
                continue
            rows = contents.rows_by_page.get(page_index, [])
            cells = [Cell(row, column, text) for row, texts in enumerate(rows) for column, text in enumerate(texts)]
            table = self._document.add_table(
                to_table_data(Grid(cells, len(rows), 2)),
                label=DocItemLabel.DOCUMENT_INDEX,
                content_layer=ContentLayer.FURNITURE,
            )
            table.prov = [self._box(piece, (0, 0)) for piece in pieces]

    def _provenance(self, element: Element) -> list[ProvenanceItem]:
        return [self._box(piece, span) for piece, span in zip(element.pieces, element.spans, strict=True)]

    def _box(self, piece: Piece, charspan: tuple[int, int]) -> ProvenanceItem:
        from docling_core.types.doc import BoundingBox, CoordOrigin, ProvenanceItem

        page = self._pages[piece.page_index]
        left, top, right, bottom = page.on_upright_page(piece.bbox_norm)
        box = BoundingBox(
            l=round(left / NORM_MAX * page.width_pt, 2),
            t=round(top / NORM_MAX * page.height_pt, 2),
            r=round(right / NORM_MAX * page.width_pt, 2),
            b=round(bottom / NORM_MAX * page.height_pt, 2),
            coord_origin=CoordOrigin.TOPLEFT,
        )
        return ProvenanceItem(page_no=page.page_number, bbox=box, charspan=charspan)


def _text_label(label: BlockLabel) -> DocItemLabel:
    from docling_core.types.doc import DocItemLabel

    return {BlockLabel.CAPTION: DocItemLabel.CAPTION, BlockLabel.FOOTNOTE: DocItemLabel.FOOTNOTE}.get(
        label, DocItemLabel.TEXT
    )
