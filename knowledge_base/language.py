"""The language of a text as an ISO 639-1 code, found with py3langid (no network, 97 languages)."""

from __future__ import annotations

import re

UNDETERMINED = "und"
"""ISO 639-2 code for a text too short to tell."""

_SAMPLE_CHARACTERS = 20_000
_MIN_LETTERS = 24
_MIN_LETTERS_OF_A_PART = 200
# Log-likelihood by which a part's own language must beat the document's, for each character. On ten manuals foreign
# paragraphs reach 0.4 and more, while commands, listings and names taken for Welsh or Latin stay below 0.35.
_CLEAR_ADVANTAGE = 0.35
_NO_LANGUAGE = "zxx"
_LETTER = re.compile(r"[^\W\d_]")
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def detect_language(text: str) -> str:
    """The most likely language of `text`, or `und` when it holds too few letters or none of a language.

    An ideograph, kana or Hangul syllable counts as three letters: it says as much. Long texts are judged by samples
    from their beginning, middle and end.
    """
    sample = _sample(text)
    if _letter_count(sample) < _MIN_LETTERS:
        return UNDETERMINED
    import py3langid

    language = str(py3langid.classify(sample)[0])
    return UNDETERMINED if language == _NO_LANGUAGE else language


def detect_language_of_part(text: str, document_language: str) -> str:
    """The language of a part of a document: the document's, unless the part is long and clearly of another."""
    sample = _sample(text)
    if _letter_count(sample) < _MIN_LETTERS_OF_A_PART:
        return document_language
    import py3langid

    ranked = py3langid.rank(sample)
    scores = {str(language): float(score) for language, score in ranked}
    language = str(ranked[0][0])
    expected = scores.get(document_language)
    if language == _NO_LANGUAGE or (
        expected is not None and scores[language] - expected < _CLEAR_ADVANTAGE * len(sample)
    ):
        return document_language
    return language


def _letter_count(text: str) -> int:
    return len(_LETTER.findall(text)) + 2 * len(_IDEOGRAPH.findall(text))


def _sample(text: str) -> str:
    if len(text) <= _SAMPLE_CHARACTERS:
        return text
    part = _SAMPLE_CHARACTERS // 3
    middle = (len(text) - part) // 2
    return "\n".join((text[:part], text[middle : middle + part], text[-part:]))
