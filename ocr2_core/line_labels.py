"""What a line's text alone says about its role: numbering, bullets, captions, contents entries, code."""

from __future__ import annotations

import re

_ROMAN = r"[ivxlcdmIVXLCDM]{1,7}"
_CHAPTER_WORDS = (
    "chapter|appendix|part|section|kapitel|anhang|teil|abschnitt|chapitre|annexe|partie|capítulo|capitulo|anexo|"
    "apéndice|parte|sección|capitolo|appendice|глава|приложение|часть|раздел|hoofdstuk|bijlage|kapittel|rozdział"
)
_CHAPTER = re.compile(rf"^(?:{_CHAPTER_WORDS})\s+(?:\d+|[A-Z]|{_ROMAN})(?:\b|[.:])", re.IGNORECASE)
_CHAPTER_CJK = re.compile(r"^第\s*[0-9一二三四五六七八九十百]+\s*[章节節部编編篇]")
_DECIMAL = re.compile(r"^(?:\d{1,3}|[A-Z])(?:\.\d{1,3}){1,5}\.?\s+\S")
_SINGLE = re.compile(r"^(?:\d{1,2}|[A-Z]|[IVX]{1,5})\.?\s+[^\W\d_]")

_BULLET = re.compile(r"^[•●▪◦‣∙·○■□►▶➢✓◆★*\u2013\u2014-](?=\s+\S)|^[•●▪◦‣∙○■□►▶➢✓◆](?=\S)|^o(?=\s+[A-Z])")
_ENUMERATOR = re.compile(rf"^(?:\(?(?:\d{{1,3}}|[a-zA-Z]|{_ROMAN})\)|(?:\d{{1,3}}|[a-z]|[ivx]{{1,5}})\.)(?=\s+\S)")

_CAPTION_WORDS = (
    "figure|fig|table|listing|example|algorithm|diagram|abbildung|abb|bild|tabelle|tab|beispiel|tableau|exemple|"
    "figura|tabla|cuadro|ejemplo|tabella|esempio|рис|рисунок|таблица|rysunek|tabela|afbeelding|tabel"
)
_CAPTION = re.compile(
    rf"^(?:{_CAPTION_WORDS})\.?\s*(?:[A-Z]\.?)?\d+(?:[.\-]\d+)*\s*(?P<end>[.:—–\-]\s*\S|[.:]?$|\s)", re.I
)
_CAPTION_CJK = re.compile(r"^[図表图圖]\s*\d+(?:[.\-]\d+)*")

_PAGE_NUMBER = re.compile(rf"^[-–—\[(]?\s*(?:\d{{1,4}}|{_ROMAN}|[A-Z]-?\d{{1,3}}|\d{{1,3}}-\d{{1,3}})\s*[-–—\])]?$")
_ENTRY_END = re.compile(rf"(?P<number>\d{{1,4}}|{_ROMAN}|[A-Z]-?\d{{1,3}}|\d{{1,3}}-\d{{1,3}})$")
_LEADERS = re.compile(r"(?:\s*[.·…・‧∙•_]\s*){3,}|\s*…+\s*|\s*\.{2,}\s*")

_FOOTNOTE = re.compile(r"^(?:\d{1,2}|[*†‡§¹²³⁴-⁹])\s*\S")
_PROMPT = re.compile(r"^\s*(?:[$#%>]\s+\S|>>>\s|\w[\w.-]*@[\w.-]+[:#$]|[A-Z]:\\>|root#|user\$)")
_CODE_MARKS = re.compile(r"[{}();=<>\[\]|&\\$#]|--\w|::|->|\w+/\w+/|^\s*(?:sudo|apt|cd|ls|make|gcc|git|cp|mv|export)\s")


def is_numbered_heading(text: str) -> bool:
    """`1.2 Title`, `A.3 Title`, `Chapter 4`, `第三章`: numbering that list items do not carry."""
    return bool(_DECIMAL.match(text) or is_chapter_line(text))


def is_chapter_line(text: str) -> bool:
    return bool(_CHAPTER.match(text) or _CHAPTER_CJK.match(text))


def is_single_numbered(text: str) -> bool:
    """`3 Title`, `3. Title`, `B Title`: a heading or a list item, to be told by its type."""
    return bool(_SINGLE.match(text))


def list_marker(text: str) -> str | None:
    """The bullet, number or letter in front of a list item."""
    found = _BULLET.match(text) or _ENUMERATOR.match(text)
    return found.group(0) if found else None


def is_caption(text: str, *, beside_figure: bool = False) -> bool:
    """`Figure 3: …`, `Table 2.1. …`; without a mark after the number only where a picture or table is near."""
    if _CAPTION_CJK.match(text):
        return beside_figure or len(text) < 60
    found = _CAPTION.match(text)
    if not found:
        return False
    return beside_figure or bool(found.group("end").strip()) or found.end() == len(text)


def is_page_number(text: str) -> bool:
    return bool(_PAGE_NUMBER.match(text.strip()))


def split_contents_entry(text: str) -> tuple[str, str] | None:
    """(title, page number) of a row such as `2.1 Setup . . . . 14`; None where it does not end in a page number."""
    found = _ENTRY_END.search(text)
    if not found or found.start() == 0:
        return None
    before = text[: found.start()]
    if not re.search(r"[\s.·…]$", before):
        return None
    title = _LEADERS.sub(" ", before).strip(" .·…")
    return (title, found.group("number")) if re.search(r"\w", title) else None


def has_leaders(text: str) -> bool:
    return bool(re.search(r"(?:[.·…‧]\s?){4,}|…{2,}", text))


def is_footnote_start(text: str) -> bool:
    return bool(_FOOTNOTE.match(text))


def is_command(text: str) -> bool:
    """A line that begins with a shell prompt."""
    return bool(_PROMPT.match(text))


def code_mark_count(text: str) -> int:
    return len(_CODE_MARKS.findall(text))
