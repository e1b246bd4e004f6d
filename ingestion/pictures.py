"""Pictures of found passages: the pages as scanned, with the passage's boxes drawn, for eyes to check a citation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ingestion.errors import ObjectMissing, SourceChanged
from ingestion.job import SourceRef
from ingestion.workspace import Workspace
from ocr2_core.errors import SourceRefused
from ocr2_core.geometry import NORM_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from knowledge_base.search import Hit
    from ocr2_core.limits import Limits

_LINE_COLOUR = (214, 39, 40)
_MARGIN_PX = 4
_LINE_WIDTH_PX = 3


@dataclass(frozen=True, slots=True)
class Picture:
    """The files of one hit, one a page in order; `rank` from 1. `problem` says why pages are missing."""

    rank: int
    files: tuple[Path, ...]
    problem: str = ""


def draw_hits(workspace: Workspace, hits: Sequence[Hit], folder: Path) -> list[Picture]:
    """Write `<rank>-page-<page number>.png` for every page of every hit; sources are fetched once each.

    A source that is gone, changed since, or cannot be rendered is a problem of its hits only. Raises
    ServiceUnavailable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_revision: dict[tuple[str, str], list[tuple[int, Hit]]] = defaultdict(list)
    for rank, hit in enumerate(hits, start=1):
        by_revision[hit.source, hit.revision].append((rank, hit))
    pictures: list[Picture] = []
    for (source, revision), ranked in by_revision.items():
        page_numbers = sorted({box.page_number for _, hit in ranked for box in hit.boxes})
        problem = ""
        pages: dict[int, NDArray[np.uint8]] = {}
        try:
            for page_number, image in _pages(workspace, source, revision, page_numbers):
                pages[page_number] = image
        except (ObjectMissing, SourceChanged, SourceRefused) as error:
            problem = str(error)
        for rank, hit in ranked:
            wanted = sorted({box.page_number for box in hit.boxes})
            missing = [page_number for page_number in wanted if page_number not in pages]
            files = [_draw(folder, rank, hit, number, pages[number]) for number in wanted if number in pages]
            if missing and not problem:
                problem = f"{source}: page {', '.join(map(str, missing))} cannot be rendered"
            pictures.append(Picture(rank, tuple(files), problem if missing else ""))
    return sorted(pictures, key=lambda picture: picture.rank)


def upright_pages(
    path: Path, limits: Limits, turns: Mapping[int, int], page_numbers: Sequence[int]
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """(page number, RGB image of the upright page) of each page that can be rendered; `turns` by page index, see
    `PageBlocks.rotation_degrees`. Raises SourceRefused for a file that cannot be opened."""
    from ocr2_core.rendering import open_source
    from ocr2_core.rotation import turn

    with open_source(path, limits, colour=True) as pages:
        for page in pages.pages([number - 1 for number in page_numbers]):
            if page.image is not None:
                yield page.page_index + 1, turn(page.image, turns.get(page.page_index, 0))


def _pages(
    workspace: Workspace, source: str, revision: str, page_numbers: Sequence[int]
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    bucket, _, key = source.removeprefix("s3://").partition("/")
    turns = _turns(workspace, bucket, key, revision)
    with workspace.downloaded(SourceRef(bucket=bucket, key=key)) as (path, download):
        if download.sha256 != revision:
            raise SourceChanged(source)
        yield from upright_pages(path, workspace.limits, turns, page_numbers)


def _turns(workspace: Workspace, bucket: str, key: str, revision: str) -> dict[int, int]:
    """Page index → clockwise degrees that make the page upright, as it was read."""
    published = workspace.manifests.read(bucket, key).published
    if published is None or published.revision != revision:
        return {}
    reading = workspace.artifacts.reading(revision, published.fingerprints.ocr)
    return {result.page.page_index: result.page.rotation_degrees for result in reading.pages()}


def _draw(folder: Path, rank: int, hit: Hit, page_number: int, image: NDArray[np.uint8]) -> Path:
    from PIL import Image, ImageDraw

    picture = Image.fromarray(image).convert("RGB")
    draw = ImageDraw.Draw(picture)
    x_scale, y_scale = picture.width / NORM_MAX, picture.height / NORM_MAX
    for box in hit.boxes:
        if box.page_number == page_number:
            x0, y0, x1, y1 = box.bbox_norm
            corners = (
                max(0, x0 * x_scale - _MARGIN_PX),
                max(0, y0 * y_scale - _MARGIN_PX),
                min(picture.width - 1, x1 * x_scale + _MARGIN_PX),
                min(picture.height - 1, y1 * y_scale + _MARGIN_PX),
            )
            draw.rectangle(corners, outline=_LINE_COLOUR, width=_LINE_WIDTH_PX)
    path = folder / f"{rank:02}-page-{page_number:04}.png"
    picture.save(path)
    return path
