"""Parse the number a heading is printed with: `3.2`, `Chapter 4`, `Anhang B`, `A.1`, `IV.`, `第3章`, `（一）`."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

from structure_recovery.vocabulary import APPENDIX_WORDS, CHAPTER_WORDS, PART_WORDS, SPELLED_NUMBERS


class NumberKind(StrEnum):
    """Forms of heading numbers. Those in FIXED_DEPTH say by themselves how deep they stand."""

    PART = "part"
    CHAPTER = "chapter"
    APPENDIX = "appendix"
    DECIMAL = "decimal"
    LETTER = "letter"
    ROMAN = "roman"
    PARENTHESIS = "parenthesis"
    SECTION_SIGN = "section_sign"
    CJK_SECTION = "cjk_section"
    CJK_ARTICLE = "cjk_article"
    CJK_COMMA = "cjk_comma"
    CJK_PARENTHESIS = "cjk_parenthesis"


FIXED_DEPTH = frozenset(
    {
        NumberKind.PART,
        NumberKind.CHAPTER,
        NumberKind.APPENDIX,
        NumberKind.DECIMAL,
        NumberKind.LETTER,
        NumberKind.CJK_SECTION,
    }
)


@dataclass(frozen=True, slots=True)
class Numbering:
    """A parsed number: `path` are its components as integers (A.1 → (1, 1), alphabetic), `title` the words after it.

    `depth` is 0 for parts, 1 for chapters and appendices, the count of components for decimals (2.0.1 is 2 deep), and 1
    for forms whose depth only their neighbours can tell.
    """

    kind: NumberKind
    path: tuple[int, ...]
    depth: int
    printed: str
    title: str
    alphabetic: bool = False
    is_spelled: bool = False

    @property
    def is_lone_number(self) -> bool:
        """One plain number, as the steps of a list have, too."""
        return self.kind is NumberKind.DECIMAL and len(self.path) == 1

    @property
    def ordinal(self) -> int:
        return self.path[-1]

    @property
    def series(self) -> tuple[bool, tuple[int, ...]]:
        """What its siblings share: the numbers of one series count up by one."""
        return self.alphabetic, self.path[:-1]


_WORDS = {
    NumberKind.PART: PART_WORDS,
    NumberKind.CHAPTER: CHAPTER_WORDS,
    NumberKind.APPENDIX: APPENDIX_WORDS,
}
_LONE_WORD = re.compile("^(?:" + "|".join(_WORDS.values()) + ")$", re.IGNORECASE)
_WORD_FORM = re.compile(
    "^(?:"
    + "|".join(f"(?P<{kind.value}>{words})" for kind, words in _WORDS.items())
    + rf")\s+(?P<number>[0-9]{{1,3}}|[ivxlc]+|{'|'.join(SPELLED_NUMBERS)}|[a-z])(?![\w])\s*[.:)–—-]?\s*(?P<title>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_DECIMAL = re.compile(
    r"^(?P<number>(?:[0-9]{1,3}|[A-Z])(?:\s?\.\s?[0-9]{1,3})+)(?:[.:)]?\s+|\.?(?=[^\W\d_]))(?P<title>.+)$", re.DOTALL
)
_INTEGER = re.compile(r"^(?P<number>[0-9]{1,3})(?:[.:)．、]\s*|\s+)(?P<title>[^\d\s.,;].*)$", re.DOTALL)
_ONLY_NUMBER = re.compile(r"^(?P<number>(?:[0-9]{1,3}|[A-Z])(?:\.[0-9]{1,3})*)\.?$")
_ROMAN = re.compile(r"^(?P<number>[IVXLC]{1,7})[.)]\s+(?P<title>\S.*)$", re.DOTALL)
_LETTER = re.compile(r"^(?P<number>[A-Z])(?:[.)]\s*|\s+)(?P<title>\S.*)$", re.DOTALL)
_PARENTHESIS = re.compile(r"^\((?P<number>[a-z]|[ivx]{1,5}|[0-9]{1,2})\)\s+(?P<title>\S.*)$", re.DOTALL)
_SECTION_SIGN = re.compile(r"^§+\s*(?P<number>[0-9]{1,4})[a-z]?\.?\s+(?P<title>\S.*)$", re.DOTALL)
_CJK_DIGITS = "0-9０-９〇零一二三四五六七八九十百"
_CJK_UNIT = re.compile(
    rf"^第\s*(?P<number>[{_CJK_DIGITS}]+)\s*(?P<unit>[编編部篇章節节条條])\s*(?P<title>.*)$", re.DOTALL
)
_CJK_APPENDIX = re.compile(
    r"^(?:附录|附錄|付録|附属書)\s*(?P<number>[A-Z0-9一二三四五六七八九十]{1,2})\s*[.:：]?\s*(?P<title>.*)$", re.DOTALL
)
_CJK_COMMA = re.compile(r"^(?P<number>[一二三四五六七八九十]{1,3})[、．.]\s*(?P<title>\S.*)$", re.DOTALL)
_CJK_PARENTHESIS = re.compile(r"^[（(](?P<number>[一二三四五六七八九十]{1,3})[）)]\s*(?P<title>\S.*)$", re.DOTALL)
_CJK_VALUES = {character: value for value, character in enumerate("零一二三四五六七八九")} | {"〇": 0}
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
_UNIT_KIND = {
    **dict.fromkeys("编編部篇", (NumberKind.PART, 0)),
    "章": (NumberKind.CHAPTER, 1),
    **dict.fromkeys("節节", (NumberKind.CJK_SECTION, 2)),
    **dict.fromkeys("条條", (NumberKind.CJK_ARTICLE, 3)),
}


def parse_numbering(text: str) -> Numbering | None:
    """The number at the start of `text`, or None. A lone number (`3.2`, `Chapter 4`) has an empty title."""
    text = text.strip()
    return _parse_word(text) or _parse_cjk(text) or _parse_plain(text)


def awaits_number(text: str) -> bool:
    """Whether the text is nothing but a word such as `Chapter`, whose number is printed apart from it."""
    return _LONE_WORD.match(text.strip()) is not None


def roman_value(text: str) -> int | None:
    """The value of a well-formed roman number in either case, or None."""
    lowered = text.lower()
    if not lowered or any(character not in _ROMAN_VALUES for character in lowered):
        return None
    values = [_ROMAN_VALUES[character] for character in lowered]
    total = sum(
        -value if value < following else value for value, following in zip(values, [*values[1:], 0], strict=True)
    )
    return total if to_roman(total) == lowered else None


def to_roman(value: int) -> str:
    """Lower-case roman number of 1..3999."""
    parts = []
    for amount, letters in (
        (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"),
        (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
    ):  # fmt: skip
        count, value = divmod(value, amount)
        parts.append(letters * count)
    return "".join(parts)


def cjk_value(text: str) -> int | None:
    """The value of a Chinese number below 1000 (or of plain digits), or None."""
    normal = unicodedata.normalize("NFKC", text)
    if normal.isascii():
        return int(normal) if normal.isdigit() else None
    total, digit = 0, None
    for character in text:
        if character in _CJK_VALUES:
            digit = _CJK_VALUES[character] + (digit or 0) * 10
        elif character in "十百":
            total += (1 if digit is None else digit) * (10 if character == "十" else 100)
            digit = None
        else:
            return None
    return total + (digit or 0)


def _parse_word(text: str) -> Numbering | None:
    match = _WORD_FORM.match(text)
    if not match:
        return None
    kind = next(kind for kind in _WORDS if match[kind.value])
    number, title = match["number"], match["title"].strip()
    printed = text[: match.start("title")].strip() if title else text
    value, alphabetic = _single_value(number, prefer_letter=kind is NumberKind.APPENDIX)
    if value is None:
        return None
    depth = 0 if kind is NumberKind.PART else 1
    return Numbering(kind, (value,), depth, printed, title, alphabetic, number.lower() in SPELLED_NUMBERS)


def _parse_cjk(text: str) -> Numbering | None:
    if match := _CJK_UNIT.match(text):
        kind, depth = _UNIT_KIND[match["unit"]]
        return _cjk(kind, depth, match)
    if match := _CJK_APPENDIX.match(text):
        number = match["number"]
        if number.isascii():
            value, alphabetic = _single_value(number, prefer_letter=True)
            return (
                Numbering(NumberKind.APPENDIX, (value,), 1, number, match["title"].strip(), alphabetic)
                if value
                else None
            )
        return _cjk(NumberKind.APPENDIX, 1, match)
    if match := _CJK_COMMA.match(text):
        return _cjk(NumberKind.CJK_COMMA, 1, match)
    if match := _CJK_PARENTHESIS.match(text):
        return _cjk(NumberKind.CJK_PARENTHESIS, 1, match)
    return None


def _cjk(kind: NumberKind, depth: int, match: re.Match[str]) -> Numbering | None:
    value = cjk_value(match["number"])
    title = match["title"].strip()
    printed = match.string[: match.start("title")].strip()
    return Numbering(kind, (value,), depth, printed, title) if value else None


def _parse_plain(text: str) -> Numbering | None:
    match = _DECIMAL.match(text) or _ONLY_NUMBER.match(text)
    if match:
        components = [component.strip() for component in match["number"].split(".")]
        title = match["title"].strip() if "title" in match.groupdict() else ""
        alphabetic = components[0].isalpha()
        if alphabetic and len(components) == 1 and not title:
            return Numbering(NumberKind.LETTER, (_letter_value(components[0]),), 1, text, "", True)
        first = _letter_value(components[0]) if alphabetic else int(components[0])
        path = (first, *(int(component) for component in components[1:]))
        # A zero in the middle (2.0.1) stands for a level that the chapter skips.
        depth = len(path) - sum(component == 0 for component in path[1:-1])
        return Numbering(NumberKind.DECIMAL, path, depth, match["number"], title, alphabetic)
    for pattern, kind in (
        (_INTEGER, NumberKind.DECIMAL),
        (_ROMAN, NumberKind.ROMAN),
        (_LETTER, NumberKind.LETTER),
        (_PARENTHESIS, NumberKind.PARENTHESIS),
        (_SECTION_SIGN, NumberKind.SECTION_SIGN),
    ):
        if not (match := pattern.match(text)):
            continue
        number = match["number"]
        if kind is NumberKind.ROMAN and roman_value(number) is None:
            continue
        value, alphabetic = (roman_value(number), False) if kind is NumberKind.ROMAN else _single_value(number)
        if value:
            return Numbering(kind, (value,), 1, number, match["title"].strip(), alphabetic)
    return None


def _single_value(number: str, *, prefer_letter: bool = False) -> tuple[int | None, bool]:
    """Value of a lone number, letter or roman number, and whether it is a letter."""
    if number.isdigit():
        return int(number), False
    if number.lower() in SPELLED_NUMBERS:
        return SPELLED_NUMBERS.index(number.lower()) + 1, False
    if len(number) == 1 and (prefer_letter or number.lower() not in "ivx"):
        return _letter_value(number), True
    return roman_value(number), False


def _letter_value(letter: str) -> int:
    return ord(letter.lower()) - ord("a") + 1
