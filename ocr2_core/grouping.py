"""Printed lines, layout regions and rules of one page become typed blocks in reading order."""

from __future__ import annotations

from collections.abc import Sequence

from ocr2_core import line_labels
from ocr2_core.blocks import Block, BlockLabel, TextLine
from ocr2_core.code_lines import code_text
from ocr2_core.columns import split_columns
from ocr2_core.contents_page import find_contents
from ocr2_core.geometry import BBoxNorm, union
from ocr2_core.layout_detection import LayoutRegion
from ocr2_core.page_line import (
    Box,
    PageLine,
    PageScale,
    body_size,
    holds_middle,
    mean_confidence,
    overlap_share,
    rows_of,
)
from ocr2_core.page_margins import find_footnotes, find_margin_rows
from ocr2_core.paragraphs import Draft, PageStyle, Row, cut_column, joined_text, page_style
from ocr2_core.ruling_lines import Grid, GridCell, Ruling
from ocr2_core.tables import open_table, rows_as_table, ruled_table

# what the layout detector calls a table is one without aligned columns where so many of its rows fall into pieces
_LEAST_SPLIT_ROWS = 0.3
_FURNITURE = (BlockLabel.PAGE_HEADER, BlockLabel.PAGE_FOOTER)


def group_lines(
    lines: Sequence[TextLine],
    regions: Sequence[LayoutRegion],
    ruling: Ruling,
    *,
    width_pt: float,
    height_pt: float,
) -> list[Block]:
    """The blocks of a page of `width_pt` × `height_pt`.

    Every line ends in exactly one block (several pieces of one printed row may be joined into one line of it).
    Order: headers, body in reading order, footnotes, footers.
    """
    return _PageGrouping(regions, ruling, PageScale(width_pt, height_pt)).group(lines)


class _PageGrouping:
    def __init__(self, regions: Sequence[LayoutRegion], ruling: Ruling, scale: PageScale) -> None:
        self._scale = scale
        self._regions = [(region.label, scale.to_points(region.bbox_norm)) for region in regions]
        self._ruling = ruling
        self._rules = [scale.to_points(box) for box in ruling.horizontal_norm]
        self._frames = [scale.to_points(grid.bbox_norm) for grid in ruling.grids if len(grid.cells) == 1]

    def group(self, lines: Sequence[TextLine]) -> list[Block]:
        pieces = [self._scale.line(line) for line in lines]
        floats, rest = self._take_floats(pieces)
        # tables and screenshots are set smaller; they count only where there is nothing else
        size = body_size(rest or pieces)
        pieces = rest
        style = page_style([self._scale.joined(row) for row in rows_of(pieces)], size)
        # the running head of a contents page ends in a number as its entries do, but has no leaders
        listed = {id(piece) for entry in find_contents(pieces) if entry.has_leaders for piece in entry.pieces}
        margins = find_margin_rows(
            [piece for piece in pieces if id(piece) not in listed],
            self._scale.height_pt,
            size,
            style.line_distance,
            self._regions,
            self._rules,
        )
        furniture = {id(piece) for rows in margins.values() for row in rows for piece in row}
        pieces = [piece for piece in pieces if id(piece) not in furniture]
        notes = find_footnotes(
            [piece for piece in pieces if id(piece) not in listed], size, self._scale.height_pt, self._rules
        )
        noted = {id(piece) for piece in notes}
        body = self._body([piece for piece in pieces if id(piece) not in noted], style)
        blocks = [self._row_block(row, BlockLabel.PAGE_HEADER) for row in margins[BlockLabel.PAGE_HEADER]]
        blocks += _with_floats(body, floats)
        blocks += self._footnotes(notes)
        blocks += [self._row_block(row, BlockLabel.PAGE_FOOTER) for row in margins[BlockLabel.PAGE_FOOTER]]
        return blocks

    # Tables and pictures take the lines inside them first.

    def _take_floats(self, pieces: list[PageLine]) -> tuple[list[Block], list[PageLine]]:
        blocks: list[Block] = []
        pictures = [box for label, box in self._regions if label is BlockLabel.PICTURE]
        for grid in self._ruling.grids:
            box = self._scale.to_points(grid.bbox_norm)
            in_picture = any(overlap_share(box, picture) > 0.8 for picture in pictures)
            if len(grid.cells) < 2 or in_picture:
                continue
            inside, pieces = _partition(pieces, box)
            if not inside:
                continue
            blocks.append(self._ruled(grid, inside))
        for label, box in self._regions:
            if label is BlockLabel.TABLE and not any(overlap_share(self._box(block), box) > 0.3 for block in blocks):
                inside, others = _partition(pieces, box)
                block = self._open_table(inside)
                if block is not None:
                    blocks.append(block)
                    pieces = others
        for box in pictures:
            if any(overlap_share(box, self._box(block)) > 0.5 for block in blocks):
                continue
            inside, pieces = _partition(pieces, box)
            blocks.append(self._picture(box, inside))
        return blocks, pieces

    def _ruled(self, grid: Grid, inside: list[PageLine]) -> Block:
        boxes: dict[GridCell, Box] = {cell: self._scale.to_points(cell.bbox_norm) for cell in grid.cells}
        return _block(BlockLabel.TABLE, inside, ruled_table(grid, boxes, inside), grid.bbox_norm)

    def _open_table(self, inside: list[PageLine]) -> Block | None:
        rows = rows_of(inside)
        if len(rows) < 2:
            return None
        table = open_table(inside)
        if table is None and sum(len(row) > 1 for row in rows) < _LEAST_SPLIT_ROWS * len(rows):
            return None  # plain lines: the text rules know better what they are
        return _block(BlockLabel.TABLE, inside, table or rows_as_table(inside))

    def _picture(self, box: Box, inside: list[PageLine]) -> Block:
        lines = [self._scale.joined(row) for row in rows_of(inside)]
        x, y = self._scale.to_points((1.0, 1.0, 1.0, 1.0))[:2]
        bbox: BBoxNorm = (box[0] / x, box[1] / y, box[2] / x, box[3] / y)
        return _block(BlockLabel.PICTURE, lines, " ".join(line.text for line in lines), bbox)

    def _box(self, block: Block) -> Box:
        return self._scale.to_points(block.bbox_norm)

    # Running text.

    def _body(self, pieces: list[PageLine], style: PageStyle) -> list[Block]:
        blocks: list[Block] = []
        for run in split_columns(pieces):
            entries = {id(piece): entry for entry in find_contents(run) for piece in entry.pieces}
            pending: list[PageLine] = []
            done: set[int] = set()
            for piece in (piece for row in rows_of(run) for piece in row):
                entry = entries.get(id(piece))
                if entry is None:
                    pending.append(piece)
                elif id(entry) not in done:
                    done.add(id(entry))
                    blocks += self._column(pending, style)
                    pending = []
                    line = self._scale.joined(entry.pieces)
                    blocks.append(_block(BlockLabel.TOC_ENTRY, [line], entry.text))
            blocks += self._column(pending, style)
        return blocks

    def _column(self, pieces: list[PageLine], style: PageStyle) -> list[Block]:
        rows = [self._row(row) for row in rows_of(pieces)]
        return [self._finished(draft) for draft in cut_column(rows, style)]

    def _row(self, pieces: list[PageLine]) -> Row:
        line = self._scale.joined(pieces)
        region = next((label for label, box in self._regions if holds_middle(box, line)), None)
        title = any(
            label is BlockLabel.SECTION_HEADER and overlap_share(line.box, box) > 0.5 for label, box in self._regions
        )
        frame = next((index for index, box in enumerate(self._frames) if holds_middle(box, line)), None)
        return Row(line, pieces, BlockLabel.SECTION_HEADER if title else region, frame)

    def _finished(self, draft: Draft) -> Block:
        label = draft.label
        if label is BlockLabel.CODE:
            return _block(label, draft.lines, code_text(draft.lines, draft.pieces))
        text = joined_text([line.text for line in draft.lines])
        if label in (BlockLabel.TEXT, BlockLabel.SECTION_HEADER) and line_labels.is_caption(
            text, beside_figure=self._is_beside_figure(draft.lines)
        ):
            label = BlockLabel.CAPTION
        return _block(label, draft.lines, text)

    def _is_beside_figure(self, lines: Sequence[PageLine]) -> bool:
        top, bottom = lines[0].y0, lines[-1].y1
        reach = 2.5 * lines[0].size
        return any(
            (label is BlockLabel.CAPTION and overlap_share(lines[0].box, box) > 0.5)
            or (
                label in (BlockLabel.PICTURE, BlockLabel.TABLE)
                and (abs(box[1] - bottom) < reach or abs(top - box[3]) < reach)
            )
            for label, box in self._regions
        )

    def _row_block(self, row: list[PageLine], label: BlockLabel) -> Block:
        return _block(label, row, " ".join(piece.text for piece in row))

    def _footnotes(self, pieces: list[PageLine]) -> list[Block]:
        blocks: list[Block] = []
        current: list[PageLine] = []
        for row in rows_of(pieces):
            line = self._scale.joined(row)
            if current and line_labels.is_footnote_start(line.text) and line.x0 <= current[0].x0 + line.size:
                blocks.append(_block(BlockLabel.FOOTNOTE, current, joined_text([other.text for other in current])))
                current = []
            current.append(line)
        if current:
            blocks.append(_block(BlockLabel.FOOTNOTE, current, joined_text([other.text for other in current])))
        return blocks


def _partition(pieces: Sequence[PageLine], box: Box) -> tuple[list[PageLine], list[PageLine]]:
    inside = [piece for piece in pieces if holds_middle(box, piece)]
    taken = {id(piece) for piece in inside}
    return inside, [piece for piece in pieces if id(piece) not in taken]


def _block(label: BlockLabel, lines: Sequence[PageLine], text: str, bbox_norm: BBoxNorm | None = None) -> Block:
    boxes = [line.line.bbox_norm for line in lines] + ([bbox_norm] if bbox_norm else [])
    return Block(
        label=label,
        bbox_norm=union(boxes),
        text=text,
        confidence=mean_confidence(line.line for line in lines),
        lines=[line.line for line in lines],
    )


def _with_floats(body: list[Block], floats: list[Block]) -> list[Block]:
    """Tables and pictures go before the first body block that begins below their top in an overlapping column."""
    blocks = list(body)
    for block in sorted(floats, key=lambda block: block.bbox_norm[1]):
        x0, y0, x1, _ = block.bbox_norm
        place = len(blocks)
        for index, other in enumerate(blocks):
            beside = min(x1, other.bbox_norm[2]) - max(x0, other.bbox_norm[0]) > 0
            if beside and other.bbox_norm[1] >= y0:
                place = index
                break
        blocks.insert(place, block)
    return blocks
