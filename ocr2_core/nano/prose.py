"""Text for synthetic pages: real prose, and words that no language model can guess.

The prose is the Python language reference, which every CPython carries (`pydoc_data.topics`, PSF licence). Every tenth
topic is held out, without the paragraphs that it shares with others. Random words, digits and identifiers are mixed in,
because on prose alone a decoder lowers its loss by guessing the next word in place of reading it.
"""

from __future__ import annotations

import random
import re
import string
from functools import lru_cache
from pydoc_data.topics import topics

LETTERS = string.ascii_letters + string.digits
PUNCTUATION = " .,:;-()'/"
CHARACTERS = LETTERS + PUNCTUATION
SPLITS = ("train", "test")

# What looks alike in some font is left out where nothing beside it tells which one it is.
_UNMISTAKABLE = "".join(letter for letter in LETTERS if letter not in "Il1O0o")
_HELD_OUT_EVERY = 10
_ALLOWED = re.compile(f"[^{re.escape(CHARACTERS)}]")
_LEAST_SENTENCE_LETTERS = 20


@lru_cache(maxsize=2)
def words_of(split: str) -> tuple[str, ...]:
    """All words of a split, in the order of the text. Raises ValueError for an unknown split."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}, one of {', '.join(SPLITS)}")
    paragraphs: dict[str, list[tuple[str, ...]]] = {"train": [], "test": []}
    for number, name in enumerate(sorted(topics)):
        own = paragraphs["test" if number % _HELD_OUT_EVERY == 0 else "train"]
        own.extend(_words(paragraph) for paragraph in topics[name].split("\n\n"))
    shared = set(paragraphs["train"]) if split == "test" else set()
    return tuple(word for paragraph in paragraphs[split] if paragraph not in shared for word in paragraph)


def prose(rng: random.Random, split: str, word_count: int) -> list[str]:
    """A run of neighbouring words from a random place."""
    words = words_of(split)
    start = rng.randrange(len(words) - word_count)
    return list(words[start : start + word_count])


def invented(rng: random.Random, word_count: int) -> list[str]:
    """Words, numbers and identifiers drawn letter by letter."""
    words = []
    for _ in range(word_count):
        kind = rng.random()
        if kind < 0.55:
            word = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9)))
            word = word.capitalize() if rng.random() < 0.2 else word
        elif kind < 0.75:
            word = "".join(rng.choices(string.digits, k=rng.randint(1, 5)))
        elif kind < 0.85:
            word = "".join(rng.choices(_UNMISTAKABLE, k=rng.randint(2, 7)))
        elif kind < 0.93:
            word = "".join(rng.choices(string.ascii_uppercase, k=rng.randint(2, 5)))
        else:
            word = f"{rng.choice(_UNMISTAKABLE)}{rng.choice('-/.:')}{rng.randint(0, 99)}"
        if rng.random() < 0.12:
            word += rng.choice(".,:;")
        elif rng.random() < 0.05:
            word = f"({word})"
        words.append(word)
    return words


def _words(paragraph: str) -> tuple[str, ...]:
    text = _ALLOWED.sub(" ", paragraph.replace("\n", " "))
    if sum(letter.isalpha() for letter in text) < _LEAST_SENTENCE_LETTERS:
        return ()
    return tuple(word for word in text.split() if word.strip(PUNCTUATION) and len(word) <= 14)
