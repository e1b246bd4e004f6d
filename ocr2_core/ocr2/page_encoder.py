"""Page pixels → visual tokens, through the checkpoint's vision tower and projector."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ocr2_core.ocr2.errors import DecoderError
from ocr2_core.ocr2.image_preparation import PagePixels
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.page_decoder import EncodedPage


@torch.no_grad()
def encode_pages(
    model: SrSwaOcrModel, pages: Sequence[tuple[int, PagePixels]], batch_pages: int = 4
) -> list[EncodedPage]:
    """`pages`: page indexes with their pixels. Pages without tiles are encoded up to `batch_pages` at a time, a tiled
    page alone (pages with different numbers of tiles cannot share a batch). Touches no cache: may run in a thread of
    its own beside decoding.

    Raises DecoderError where the model makes another number of visual tokens than the pixels were prepared for.
    """
    encoded: list[EncodedPage] = []
    waiting: list[tuple[int, PagePixels]] = []
    for page in pages:
        shares_batch = page[1].tiles is None and all(page[1].page.shape == other.page.shape for _, other in waiting)
        if waiting and (not shares_batch or len(waiting) == batch_pages):
            encoded.extend(_encode(model, waiting))
            waiting = []
        if page[1].tiles is None:
            waiting.append(page)
        else:
            encoded.extend(_encode(model, [page]))
    if waiting:
        encoded.extend(_encode(model, waiting))
    return encoded


def _encode(model: SrSwaOcrModel, pages: Sequence[tuple[int, PagePixels]]) -> list[EncodedPage]:
    weight = model.model.multi_modal_projector.weight
    pixels = torch.stack([page.page for _, page in pages]).to(weight.device, weight.dtype)
    tiles = pages[0][1].tiles
    if tiles is None:
        outputs = model.get_image_features(pixels)
    else:
        outputs = model.get_image_features(
            pixels, tiles.to(weight.device, weight.dtype), [len(tiles)], [list(pages[0][1].grid)]
        )
    features: list[Tensor] = outputs.pooler_output
    for (page_index, page), tokens in zip(pages, features, strict=True):
        if len(tokens) != page.token_count:
            raise DecoderError(
                f"page index {page_index} became {len(tokens)} visual tokens, its pixels were prepared for "
                f"{page.token_count}. The image settings do not fit this checkpoint."
            )
    return [
        EncodedPage(page_index, page.token_count, tokens, page.row_lengths)
        for (page_index, page), tokens in zip(pages, features, strict=True)
    ]
