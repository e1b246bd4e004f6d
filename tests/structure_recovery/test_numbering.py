from __future__ import annotations

import pytest

from structure_recovery.numbering import NumberKind, awaits_number, cjk_value, parse_numbering, roman_value, to_roman


@pytest.mark.parametrize(
    ("text", "kind", "path", "depth", "title"),
    [
        ("1 Introduction", NumberKind.DECIMAL, (1,), 1, "Introduction"),
        ("3.2 Installing", NumberKind.DECIMAL, (3, 2), 2, "Installing"),
        ("2.4Installation", NumberKind.DECIMAL, (2, 4), 2, "Installation"),
        ("1.2.3. Deep down", NumberKind.DECIMAL, (1, 2, 3), 3, "Deep down"),
        ("2.0.1 Building", NumberKind.DECIMAL, (2, 0, 1), 2, "Building"),
        ("A.1 Licence", NumberKind.DECIMAL, (1, 1), 2, "Licence"),
        ("B Regression testing", NumberKind.LETTER, (2,), 1, "Regression testing"),
        ("Chapter 3 Setup", NumberKind.CHAPTER, (3,), 1, "Setup"),
        ("CHAPTER ONE", NumberKind.CHAPTER, (1,), 1, ""),
        ("Kapitel 12: Werkzeuge", NumberKind.CHAPTER, (12,), 1, "Werkzeuge"),
        ("Chapitre IV — Réseau", NumberKind.CHAPTER, (4,), 1, "Réseau"),
        ("Capítulo 2. Datos", NumberKind.CHAPTER, (2,), 1, "Datos"),
        ("Глава 5. Сеть", NumberKind.CHAPTER, (5,), 1, "Сеть"),
        ("Anhang B Lizenz", NumberKind.APPENDIX, (2,), 1, "Lizenz"),
        ("Appendix C", NumberKind.APPENDIX, (3,), 1, ""),
        ("Part II The tools", NumberKind.PART, (2,), 0, "The tools"),
        ("IV. Results", NumberKind.ROMAN, (4,), 1, "Results"),
        ("§ 12 Haftung", NumberKind.SECTION_SIGN, (12,), 1, "Haftung"),
        ("(a) Scope", NumberKind.PARENTHESIS, (1,), 1, "Scope"),
        ("第3章 安装", NumberKind.CHAPTER, (3,), 1, "安装"),
        ("第二十一节 网络", NumberKind.CJK_SECTION, (21,), 2, "网络"),
        ("一、概述", NumberKind.CJK_COMMA, (1,), 1, "概述"),
        ("（十二）维护", NumberKind.CJK_PARENTHESIS, (12,), 1, "维护"),
        ("付録A ライセンス", NumberKind.APPENDIX, (1,), 1, "ライセンス"),
    ],
)
def test_parses_the_number(text: str, kind: NumberKind, path: tuple[int, ...], depth: int, title: str) -> None:
    numbering = parse_numbering(text)
    assert numbering is not None
    assert (numbering.kind, numbering.path, numbering.depth, numbering.title) == (kind, path, depth, title)


@pytest.mark.parametrize(
    "text", ["Introduction", "2004 was a good year", "Partial results", "Chapters", "3,5 V", "..."]
)
def test_finds_no_number(text: str) -> None:
    assert parse_numbering(text) is None


def test_alphabetic_and_decimal_series_differ() -> None:
    letters, digits = parse_numbering("A.2 Foo"), parse_numbering("1.2 Foo")
    assert letters is not None
    assert digits is not None
    assert letters.series == (True, (1,))
    assert digits.series == (False, (1,))


def test_a_word_may_wait_for_its_number() -> None:
    assert awaits_number("CHAPTER")
    assert not awaits_number("Chapter 1")


def test_roman_numbers() -> None:
    assert [roman_value(text) for text in ("iv", "XII", "mcmxc", "iiii", "vx", "")] == [4, 12, 1990, None, None, None]
    assert to_roman(49) == "xlix"


def test_chinese_numbers() -> None:
    assert [cjk_value(text) for text in ("十", "二十三", "一百零五", "12", "３", "字")] == [10, 23, 105, 12, 3, None]
