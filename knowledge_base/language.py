"""The language of a text as an ISO 639-1 code, found with py3langid (no network, 97 languages)."""

from __future__ import annotations

import re

UNDETERMINED = "und"
"""ISO 639-2 code for a text too short to tell."""

_SAMPLE_CHARACTERS = 20_000
_MIN_LETTERS = 24
_LETTER = re.compile(r"[^\W\d_]")
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def detect_language(text: str, *, min_letters: int = _MIN_LETTERS) -> str:
    """The most likely language of `text`, or `und` when it holds fewer than `min_letters` letters.

    An ideograph, kana or Hangul syllable counts as three letters: it says as much. Long texts are judged by samples
    from their beginning, middle and end.
    """
    sample = _sample(text)
    letter_count = len(_LETTER.findall(sample)) + 2 * len(_IDEOGRAPH.findall(sample))
    if letter_count < min_letters:
        return UNDETERMINED
    import py3langid

    language, _ = py3langid.classify(sample)
    return str(language)


def _sample(text: str) -> str:
    if len(text) <= _SAMPLE_CHARACTERS:
        return text
    part = _SAMPLE_CHARACTERS // 3
    middle = (len(text) - part) // 2
    return "\n".join((text[:part], text[middle : middle + part], text[-part:]))
