"""The auxiliary loss that makes the vision tower read: which characters lie under a patch, and under a visual token.

Without it the decoder becomes a language model and the gradient that reaches the encoder says nothing. Two linear
heads, used in training only, look at the neck's output (a cell of 8 x 8 px) and at the projected visual tokens (32 x
32 px); each has one slot for every 8 px of width in every line (or quarter of a line), which holds the character whose
centre lies there, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ocr2_core.nano.architecture import PATCH_PX, TOKENS_A_SIDE
from ocr2_core.nano.pages import LINE_PITCH_PX, PAGE_SIDE_PX, NanoPage
from ocr2_core.nano.prose import CHARACTERS

CLASSES = 1 + len(CHARACTERS)
_CLASS_OF = {character: number + 1 for number, character in enumerate(CHARACTERS)}
_SLOT_WIDTH_PX = 8
# Most slots are empty; at full weight they drown the characters.
_EMPTY_WEIGHT = 0.1


class CharacterHeads(nn.Module):
    """`neck_channels`, `hidden_size`: widths of the neck's output and of a visual token."""

    def __init__(self, neck_channels: int, hidden_size: int) -> None:
        super().__init__()
        self.cell_px = PAGE_SIDE_PX // TOKENS_A_SIDE
        slots = (self.cell_px // LINE_PITCH_PX) * (self.cell_px // _SLOT_WIDTH_PX)
        self.token_head = nn.Linear(hidden_size, slots * CLASSES)
        self.neck_head = nn.Linear(neck_channels, PATCH_PX // _SLOT_WIDTH_PX * CLASSES)
        weight = torch.ones(CLASSES)
        weight[0] = _EMPTY_WEIGHT
        self.register_buffer("weight", weight)

    def forward(self, tokens: Tensor, neck: Tensor, pages: Sequence[NanoPage]) -> tuple[Tensor, float]:
        """`tokens` (B, visual tokens, hidden size), `neck` (B, channels, side, side) → the loss, and the share of the
        characters that the visual tokens' head gets right."""
        count, side = len(pages), TOKENS_A_SIDE
        grid = tokens[:, :-1].reshape(count, side, side + 1, -1)[:, :, :side]
        lines = self.cell_px // LINE_PITCH_PX
        by_token = self.token_head(grid).float().view(count, side, side, lines, -1, CLASSES).permute(0, 1, 3, 2, 4, 5)
        by_patch = self.neck_head(neck.permute(0, 2, 3, 1)).float()
        token_labels = slot_labels(pages, LINE_PITCH_PX).view(-1)
        token_logits = by_token.reshape(-1, CLASSES)
        weight = self.get_buffer("weight")
        loss = nn.functional.cross_entropy(token_logits, token_labels, weight=weight)
        loss = loss + nn.functional.cross_entropy(
            by_patch.reshape(-1, CLASSES), slot_labels(pages, PATCH_PX).view(-1), weight=weight
        )
        is_character = token_labels > 0
        right = token_logits.detach().argmax(-1)[is_character] == token_labels[is_character]
        return loss, float(right.float().mean())


def slot_labels(pages: Sequence[NanoPage], height_px: int) -> Tensor:
    """(B, rows, columns): the character in each slot of this height."""
    labels = np.zeros((len(pages), PAGE_SIDE_PX // height_px, PAGE_SIDE_PX // _SLOT_WIDTH_PX), np.int64)
    for number, page in enumerate(pages):
        for block in page.glyphs:
            for glyph in block:
                if glyph.character != " ":
                    row, column = int(glyph.y_px) // height_px, int(glyph.x_px) // _SLOT_WIDTH_PX
                    labels[number, row, column] = _CLASS_OF[glyph.character]
    return torch.from_numpy(labels)
