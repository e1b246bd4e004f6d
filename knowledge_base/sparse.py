"""BM25 term weights as sparse vectors: words stemmed by language, CJK as character bigrams, stable term ids.

Qdrant multiplies each term with its inverse document frequency (`modifier=idf`), so a passage's vector holds the rest
of BM25 (Robertson and Zaragoza, 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", eq. 3.15):

    weight(term) = tf · (k1 + 1) / (tf + k1 · (1 − b + b · length / average_length))

and a query's vector holds 1 for each term. The average length is a constant and not measured, so that the weights of a
passage never depend on what else is stored and can be computed anywhere.
"""

from __future__ import annotations

import hashlib
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

SCHEME_VERSION = 1
"""Raise it when the same text would get other terms or ids: stored vectors are then refused and must be made again."""

_STEMMERS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "nb": "norwegian",
    "ne": "nepali",
    "nl": "dutch",
    "nn": "norwegian",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}

# Scripts written without spaces between words (Han, kana, Bopomofo, Thai, Lao, Myanmar, Khmer), and Hangul, whose
# words carry particles: bigrams find them without a dictionary.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u3400-\u4dbf\u4e00-\u9fff"
_UNSPACED += "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
# Python's \w leaves out combining marks, which would cut Hindi or vocalised Arabic words in pieces.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0962-\u0963"
_MARKS += "\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c56"
_LETTER = rf"(?:(?![{_UNSPACED}])[^\W_]|[{_MARKS}])"
_TOKEN = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|(?P<word>{_LETTER}+(?:[-_./:+'’]{_LETTER}+)*)")
_INNER = re.compile(r"[-_./:+'’]")


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Term ids (unsigned 32 bit, ascending, each once) and their weights."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


class SparseEncoder:
    """Turns text into BM25 vectors; holds no state but its three constants.

    `k1` bounds what repeating a term can add, `b` is the share of length normalisation, `average_length` the number of
    terms of a typical passage (110: chunks of seven manuals in four languages, cut for 256 MiniLM tokens, had means of
    92 to 124).
    """

    def __init__(self, *, k1: float = 1.2, b: float = 0.75, average_length: float = 110.0) -> None:
        if k1 < 0 or not 0 <= b <= 1 or average_length <= 0:
            raise ValueError(f"BM25 needs k1 >= 0, 0 <= b <= 1, average_length > 0, not {k1}, {b}, {average_length}")
        self.k1 = k1
        self.b = b
        self.average_length = average_length

    def identity(self) -> dict[str, str | int | float]:
        """All that the vectors depend on; stored with the collection and compared before anything is written."""
        return {
            "scheme": "bm25",
            "version": SCHEME_VERSION,
            "k1": self.k1,
            "b": self.b,
            "average_length": self.average_length,
        }

    def encode_passage(self, text: str, language: str) -> SparseVector:
        """Weights of the passage's terms; `language` (ISO 639-1) chooses the stemmer, none for an unknown one."""
        frequencies: Counter[str] = Counter()
        length = 0
        for token, is_part in _tokens(text):
            frequencies[_stem(token, language)] += 1
            length += is_part
        damping = self.k1 * (1 - self.b + self.b * length / self.average_length)
        return _vector({term: tf * (self.k1 + 1) / (tf + damping) for term, tf in frequencies.items()})

    def encode_query(self, text: str, language: str | None = None) -> SparseVector:
        """Weight 1 for each term of the query.

        Without a language a word stands for its stems in all languages: queries are too short to tell their language,
        and a passage holds only the stem of its own, so the others find nothing.
        """
        terms: set[str] = set()
        for token, _ in _tokens(text):
            if language is not None:
                terms.add(_stem(token, language))
            else:
                terms.add(token)
                terms.update(_stem(token, code) for code in _STEMMERS)
        return _vector(dict.fromkeys(terms, 1.0))


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Each term with True, or False for the whole of a compound whose parts were given: it adds nothing to the length.

    A compound (`E-4071`, `etc/hosts.allow`, `foo_bar`) is a term of its own beside its parts, so that a part number is
    found exactly and by its pieces.
    """
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text).casefold()):
        if run := match["unspaced"]:
            if len(run) == 1:
                yield run, True
            for first, second in pairwise(run):
                yield first + second, True
            continue
        word = match["word"]
        parts = [part for part in _INNER.split(word) if part]
        for part in parts:
            yield part, True
        if len(parts) > 1:
            yield word, False


# a stemmer keeps the word in itself while it works
_STEMMING = threading.Lock()


@cache
def _stemmer(language: str) -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer(_STEMMERS[language])


def _stem(token: str, language: str) -> str:
    """The token's stem; numbers, codes and compounds stay as they are."""
    if language not in _STEMMERS or not token.isalpha() or len(token) < 3:
        return token
    return _stemmed(token, language)


@lru_cache(maxsize=65_536)
def _stemmed(token: str, language: str) -> str:
    # most words of a manual come again and again, and stemming costs ten times the rest of a passage's encoding
    with _STEMMING:
        return str(_stemmer(language).stemWord(token))


def _vector(weights: dict[str, float]) -> SparseVector:
    by_id: dict[int, float] = {}
    for term, weight in weights.items():
        term_id = int.from_bytes(hashlib.blake2b(term.encode(), digest_size=4).digest(), "big")
        by_id[term_id] = by_id.get(term_id, 0.0) + weight
    ordered = sorted(by_id.items())
    return SparseVector(tuple(term_id for term_id, _ in ordered), tuple(weight for _, weight in ordered))
