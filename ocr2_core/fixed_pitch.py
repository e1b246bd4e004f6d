"""Tells typewriter faces: whether word widths follow the number of letters or the letters' own widths."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr2_core.line_evidence import is_ideograph
from ocr2_core.text_recognition import RecognisedLine

_SAME_PITCH = 0.03
_PITCH_SHARES = (0.46, 0.70)  # of the type size: Computer Modern Typewriter 0.525, Courier 0.6


@dataclass(frozen=True, slots=True)
class PitchFit:
    """How well both models fit one line.

    `evidence` is the log of the squared error of equal letter widths over that of a book face's: low means fixed.
    `pitch_px` is the letter distance under equal widths, `word_count` the words that were compared.
    """

    evidence: float
    pitch_px: float
    word_count: int


def fit_pitch(line: RecognisedLine, width_px: float) -> PitchFit | None:
    """Compare both models on the words of a line that is `width_px` wide; None for lines too short to tell."""
    if len(line.text) != len(line.centres) or any(map(is_ideograph, line.text)):
        return None
    widths, counts, advances = [], [], []
    start = 0
    for word in line.text.split(" "):
        if len(word) >= 2:
            widths.append((line.centres[start + len(word) - 1] - line.centres[start]) * width_px)
            counts.append(len(word) - 1.0)
            advances.append(sum(map(_advance, word)) - (_advance(word[0]) + _advance(word[-1])) / 2)
        start += len(word) + 1
    if len(widths) < 2 or sum(counts) < 5:
        return None
    observed = np.asarray(widths)
    fixed_error, pitch = _fit(observed, np.asarray(counts))
    book_error, _ = _fit(observed, np.asarray(advances))
    least = 1e-4 * float(observed @ observed)
    return PitchFit(math.log((fixed_error + least) / (book_error + least)), pitch, len(widths))


def _fit(observed: NDArray[np.float64], model: NDArray[np.float64]) -> tuple[float, float]:
    scale = float(observed @ model) / float(model @ model)
    return float(np.square(observed - scale * model).sum()), scale


@functools.lru_cache(maxsize=4096)
def _advance(character: str) -> float:
    """Mean width over a serif and a sans-serif face, in ems."""
    return sum(float(font.glyph_advance(ord(character))) for font in _book_faces()) / 2


@functools.cache
def _book_faces() -> tuple[Any, ...]:
    import pymupdf

    return tuple(pymupdf.Font(name) for name in ("tiro", "helv"))


def find_fixed_pitch(fits: Sequence[PitchFit | None], font_heights_px: Sequence[float | None]) -> list[bool | None]:
    """Decide for all lines of one page together: typewriter lines of a page share their pitch."""

    def plausible(index: int) -> bool:
        fit, size = fits[index], font_heights_px[index]
        return fit is not None and (size is None or _PITCH_SHARES[0] < fit.pitch_px / size < _PITCH_SHARES[1])

    sure = [fit.pitch_px for i, fit in enumerate(fits) if fit is not None and plausible(i) and fit.evidence < -0.8]
    decisions: list[bool | None] = []
    for index, fit in enumerate(fits):
        if fit is None:
            decisions.append(None)
            continue
        alike = sum(abs(fit.pitch_px / pitch - 1) < _SAME_PITCH for pitch in sure)
        limit = 0.8 if alike >= 4 else 0.0 if alike >= 2 else -1.8 if fit.word_count >= 3 else -math.inf
        decisions.append(plausible(index) and fit.evidence < limit)
    return decisions
