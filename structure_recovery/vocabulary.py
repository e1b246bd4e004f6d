"""Words manuals use, in the languages we know: evidence where they stand, nothing depends on them where they do not."""

from __future__ import annotations

import unicodedata


def letters_of(text: str) -> str:
    """Letters and digits only, NFKC and case-folded: what two readings of the same words share."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum())


def _words(lines: str) -> frozenset[str]:
    return frozenset(letters_of(word) for word in lines.replace("\n", "|").split("|") if word.strip())


CONTENTS_TITLES = _words(
    """Contents|Table of Contents|Brief Contents|Detailed Contents
    Inhalt|Inhaltsverzeichnis|Table des matières|Sommaire
    Índice|Índice general|Índice de contenidos|Contenido|Contenidos|Tabla de contenidos
    Contenuti|Indice|Sommario|Sumário|Inhoudsopgave|Spis treści|Содержание|Оглавление
    目录|目錄|目次|차례"""
)

# Lists of figures, tables and the like: set like the contents, but no part of the tree.
LIST_TITLES = _words(
    """List of Figures|List of Tables|List of Examples|List of Listings|List of Algorithms
    Abbildungsverzeichnis|Tabellenverzeichnis|Liste des tableaux|Liste des figures|Table des figures
    Liste des illustrations|Índice de figuras|Índice de cuadros|Lista de tablas|Lista de figuras|Índice de tablas
    図目次|表目次|插图目录|表格目录|Список таблиц|Список иллюстраций"""
)

# Words that open a note or warning: printed large, but no headings.
ADMONITIONS = _words(
    """note|notes|tip|hint|caution|warning|important|danger|attention|notice|remark
    Hinweis|Tipp|Vorsicht|Warnung|Achtung|wichtig|Gefahr|Anmerkung
    remarque|astuce|avertissement|prudence|nota|consejo|sugerencia|aviso|advertencia|atención|precaución
    importante|peligro|avvertenza|attenzione|suggerimento
    примечание|внимание|совет|предупреждение|注意|注|提示|警告|重要|备注|危険|ヒント|注記|ノート"""
)

# Alternatives of a regular expression, matched without regard to case.
PART_WORDS = "part|teil|partie|parte|часть|book|buch|livre|libro"
CHAPTER_WORDS = r"chapter|chap\.|kapitel|chapitre|cap[ií]tulo|capitolo|hoofdstuk|глава|rozdział|kapitola"
APPENDIX_WORDS = (
    "appendix|annex|anhang|annexe|appendice|ap[ée]ndice|anexo|allegato|приложение|bijlage|附录|附錄|付録|附属書"
)
SECTION_WORDS = r"section|sect\.|sec\.|§|abschnitt|abschn\.|secci[oó]n|apartado|sezione|paragraphe|раздел|节|節"
FIGURE_WORDS = r"fig(?:ure|\.)?|abb(?:ildung|\.)?|figur[ea]?|рис(?:унок|\.)?|図|图|圖"
TABLE_WORDS = r"table|tab(?:elle|leau|la|\.)?|cuadro|таблиц[аеу]|表"
CAPTION_WORDS = rf"{FIGURE_WORDS}|{TABLE_WORDS}|example|beispiel|exemple|ejemplo|listing"
PAGE_WORDS = r"page|p\.|seite|s\.|p[áa]gina|pagina|стр(?:аница|\.)"
SEE_WORDS = r"see|siehe|vgl\.|voir|v[ée]ase|ver|vedi|см\.|参照|见|參見"

SPELLED_NUMBERS = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
