"""Questions with known answers: sets for measuring search, read from files or made from a manual's own index.

A manual says itself where its subjects are treated: the index at its back and the contents at its front name a term and
a printed page. Both are questions that a person had in mind, and need no language model to make.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from knowledge_base.errors import QuestionSetRefused

if TYPE_CHECKING:
    from docling_core.types.doc.document import DoclingDocument

QuestionKind = Literal["written", "contents", "index"]

_MOST_INDEX_PAGES = 5
_INDEX_HEADING = re.compile(
    r"(\w+ ){0,4}index|stichwortverzeichnis|sach(wort)?(register|verzeichnis)|register"
    r"|índice (alfabético|de materias|analítico)|索引|事項索引|предметный указатель|указатель",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"^\s*(?:(?:chapter|part|appendix|section|kapitel|teil|anhang|chapitre|partie|annexe|capítulo|parte|apéndice)\s+)?"
    r"(?:(?:[0-9]+|[A-Z]|[IVXLC]+)(?:\.[0-9A-Za-z]+)*[.:)]?\s+|第[0-9一二三四五六七八九十]+[章節节]\s*)",
    re.IGNORECASE,
)
_PAGE_LIST = r"(?:\d{1,4}|[ivxlc]{1,7})(?:\s*[-–]\s*\d{1,4})?"
# A term holds no digits, so that one entry's pages cannot run into the next entry's term.
_INDEX_ENTRY = re.compile(
    rf"(?P<term>[^\W\d][^\d\n]*?)[\s,.·…]+(?P<pages>{_PAGE_LIST}(?:\s*,\s*{_PAGE_LIST})*)(?=[\s.;]|$)"
)
_UNSPACED = re.compile(r"[぀-ヿ㐀-鿿]")


class Question(BaseModel):
    """A question and the pages of one source that answer it.

    In a file: one JSON object a line, with `question`, `source`, and `pages` (or `page`), from 1; `answer`, `language`
    and `kind` are for readers of reports.
    """

    model_config = ConfigDict(frozen=True)

    question: str = Field(min_length=1)
    source: str = Field(min_length=1)
    pages: tuple[int, ...] = Field(min_length=1)
    answer: str | None = None
    language: str | None = None
    kind: QuestionKind = "written"

    @model_validator(mode="before")
    @classmethod
    def _one_page(cls, given: object) -> object:
        if isinstance(given, dict) and "page" in given:
            given = dict(given)
            given.setdefault("pages", [given.pop("page")])
            given.pop("page", None)
        return given

    @model_validator(mode="after")
    def _pages_from_one(self) -> Question:
        if min(self.pages) < 1 or not self.question.strip():
            raise ValueError("a question has words, and pages counted from 1")
        return self


def read_questions(path: Path) -> list[Question]:
    """The questions of a JSON Lines file. Raises QuestionSetRefused naming the line that is wrong, and for no question
    at all."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise QuestionSetRefused(f"{path} cannot be read: {error}") from error
    questions = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            questions.append(Question.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise QuestionSetRefused(
                f"{path} line {number}: {place + ': ' if place else ''}{first['msg']}. "
                'A line is like {"question": "…", "source": "s3://bucket/key", "page": 12}'
            ) from error
    if not questions:
        raise QuestionSetRefused(f"{path} holds no question")
    return questions


def write_questions(questions: Iterable[Question], path: Path) -> None:
    """Write a JSON Lines file that `read_questions` takes."""
    lines = [question.model_dump_json(exclude_none=True) + "\n" for question in questions]
    path.write_text("".join(lines), encoding="utf-8")


def questions_of(document: DoclingDocument, page_labels: Mapping[int, str], source: str) -> list[Question]:
    """Questions from the printed contents and the index of a recovered document, each page that they name looked up.

    `page_labels`: the number printed on each page (by page number from 1), as the structure report has it. Left out:
    entries whose page is not in the file, titles of one word, what occurs twice, and index terms with many pages.
    """
    page_of = {label.casefold(): page_number for page_number, label in sorted(page_labels.items(), reverse=True)}
    made = [*_contents_questions(document, page_of, source), *_index_questions(document, page_of, source)]
    count = Counter(question.question.casefold() for question in made)
    return [question for question in made if count[question.question.casefold()] == 1]


def _contents_questions(document: DoclingDocument, page_of: Mapping[str, int], source: str) -> Iterator[Question]:
    for title, page_number in _contents_entries(document, page_of):
        if _is_telling(title):
            yield Question(question=title, source=source, pages=(page_number,), kind="contents")


def _contents_entries(document: DoclingDocument, page_of: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Title without its number, and page number, of each entry whose page is in the file."""
    from docling_core.types.doc.labels import DocItemLabel

    for table in document.tables:
        if table.label is not DocItemLabel.DOCUMENT_INDEX:
            continue
        for row in table.data.grid:
            if len(row) != 2:
                continue
            page_number = page_of.get(row[1].text.strip().casefold())
            if page_number is not None:
                yield _NUMBER.sub("", row[0].text).strip(" .·…"), page_number


def _index_questions(document: DoclingDocument, page_of: Mapping[str, int], source: str) -> Iterator[Question]:
    text = "\n".join(_index_texts(document))
    for match in _INDEX_ENTRY.finditer(text):
        term = " ".join(match["term"].split()).strip(" ,.;:")
        pages = sorted({page for page in _listed_pages(match["pages"], page_of) if page is not None})
        if pages and len(pages) <= _MOST_INDEX_PAGES and _is_term(term):
            yield Question(question=term, source=source, pages=tuple(pages), kind="index")


def _index_texts(document: DoclingDocument) -> Iterator[str]:
    """Texts under an index heading in the last third of the document; letters of the alphabet may stand as headings."""
    from docling_core.types.doc.document import SectionHeaderItem, TableItem, TextItem

    last_third = 2 * len(document.pages) / 3
    is_index = False
    for item, _ in document.iterate_items():
        if isinstance(item, SectionHeaderItem):
            if len(item.text.strip()) > 1:
                is_late = bool(item.prov) and item.prov[0].page_no > last_third
                is_index = is_late and _INDEX_HEADING.fullmatch(_NUMBER.sub("", item.text).strip()) is not None
        elif is_index and isinstance(item, TextItem):
            yield item.text
        elif is_index and isinstance(item, TableItem):
            for row in item.data.grid:
                yield " ".join(cell.text for cell in row)


def _listed_pages(pages: str, page_of: Mapping[str, int]) -> Iterator[int | None]:
    for part in pages.split(","):
        first, _, last = (piece.strip() for piece in part.replace("–", "-").partition("-"))
        if last and first.isdigit() and int(first) < int(last) <= int(first) + _MOST_INDEX_PAGES:
            yield from (page_of.get(str(number)) for number in range(int(first), int(last) + 1))
        else:
            yield page_of.get(first.casefold())


def _is_telling(title: str) -> bool:
    """Whether a title says what it is about: "Introduction" is in every manual."""
    return len(_UNSPACED.findall(title)) >= 4 or len(re.findall(r"[^\W\d_]{2,}", title)) >= 2


def _is_term(term: str) -> bool:
    """Whether an index term stands by itself: "of lists" belongs to the term above it."""
    words = term.split()
    if len(_UNSPACED.findall(term)) >= 2:
        return True
    letters = sum(letter.isalpha() for letter in term)
    return 1 <= len(words) <= 6 and letters >= 4 and (len(words[0]) > 3 or words[0][:1].isupper())
