"""Training sequences: BOS, the pages of a group, the prompt, and what the model should write, under the R-SWA mask.

A decoder that comes from a carried hand-over finds the end of an earlier page in its window, whose image it does not
see. So some sequences begin with such a remainder, which costs no loss. Positions run as `sequence_state` puts them:
reference first, output behind it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ocr2_core.nano.architecture import TOKENS_A_SIDE, VISUAL_TOKENS
from ocr2_core.nano.pages import PAGE_SIDE_PX
from ocr2_core.nano.vocabulary import BOS, EOS, GROUP_PROMPT, IMAGE, PAD, PAGE, SINGLE_PROMPT, TOKEN_IDS, WrittenPage
from ocr2_core.nano.window_attention import window_mask

_NO_LOSS = -100
_NO_TARGET = -1


@dataclass(frozen=True, slots=True)
class SequenceBatch:
    """S sequences of T tokens over groups of G pages.

    `token_ids` (S, T); `labels` (S, T): the token that should come next, -100 for no loss; `targets` (S, T): number of
    the visual token, among those of all the group's pages, where the next token is read, -1 for none; `turns` (S, T):
    whether the next token is the first of a page; `reference_count`: tokens of the reference, the same for all.
    """

    token_ids: Tensor
    labels: Tensor
    targets: Tensor
    turns: Tensor
    reference_count: int

    @property
    def mask(self) -> Tensor:
        """(1, 1, T, T) bool: reference tokens see what came before them, output tokens the reference and the window."""
        return window_mask(self.token_ids.shape[1], self.reference_count)[None, None]


def build_batch(
    groups: Sequence[Sequence[WrittenPage]], rng: random.Random, *, history_share: float = 0.3
) -> SequenceBatch:
    """All groups have the same number of pages. One page alone has either prompt."""
    page_count = len(groups[0])
    prompt = GROUP_PROMPT if page_count > 1 or rng.random() < 0.5 else SINGLE_PROMPT
    reference = [TOKEN_IDS[BOS], *[TOKEN_IDS[IMAGE]] * (page_count * VISUAL_TOKENS), TOKEN_IDS[prompt]]
    rows = []
    for group in groups:
        history: list[int] = []
        if prompt == GROUP_PROMPT and rng.random() < history_share:
            other = rng.choice(rng.choice(groups)).token_ids
            history = list(other[-rng.randint(1, len(other)) :])
        rows.append(_row(reference, group, history, has_marker=prompt == GROUP_PROMPT))
    longest = max(len(row[0]) for row in rows)
    columns = zip(*rows, strict=True)
    fills = (TOKEN_IDS[PAD], _NO_LOSS, _NO_TARGET, 0)
    padded = [
        torch.tensor([values + [fill] * (longest - len(values)) for values in column])
        for column, fill in zip(columns, fills, strict=True)
    ]
    token_ids, labels, targets, turns = padded
    return SequenceBatch(token_ids, labels, targets, turns.bool(), len(reference))


def _row(
    reference: list[int], group: Sequence[WrittenPage], history: list[int], *, has_marker: bool
) -> list[list[int]]:
    output, sources, starts = list(history), [_NO_TARGET] * len(history), []
    for place, page in enumerate(group):
        if has_marker:
            output.append(TOKEN_IDS[PAGE])
            sources.append(_NO_TARGET)
        starts.append(len(output))
        output.extend(page.token_ids)
        sources.extend(_visual_token(place, source) for source in page.sources)
    output.append(TOKEN_IDS[EOS])
    sources.append(_NO_TARGET)
    # the last reference token, the prompt, writes the first output token: after a history, the history is given
    before = len(reference) - 1
    first_loss = before + len(history)
    token_ids = [*reference, *output[:-1]]
    labels = [_NO_LOSS] * before + output
    targets = [_NO_TARGET] * before + sources
    labels[:first_loss] = [_NO_LOSS] * first_loss
    turns = [0] * len(labels)
    for start in starts:
        turns[before + start] = 1
    return [token_ids, labels, targets, turns]


def _visual_token(place: int, source: tuple[float, float]) -> int:
    cell = PAGE_SIDE_PX / TOKENS_A_SIDE
    column, row = int(source[0] // cell), int(source[1] // cell)
    return place * VISUAL_TOKENS + row * (TOKENS_A_SIDE + 1) + column
