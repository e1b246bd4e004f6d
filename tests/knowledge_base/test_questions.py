"""Question sets: read, refused by line, and made from a manual's contents and index."""

from __future__ import annotations

from pathlib import Path

import pytest
from docling_core.types.doc import DocItemLabel, DoclingDocument

from knowledge_base.errors import QuestionSetRefused
from knowledge_base.questions import Question, questions_of, read_questions, write_questions
from tests.knowledge_base.builders import empty_document, provenance, table_data

SOURCE = "s3://manuals/pump.pdf"


def test_a_set_is_read_as_it_was_written_and_takes_a_single_page(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    written = [
        Question(question="Which oil?", source=SOURCE, pages=(3, 4), answer="grade 32"),
        Question(question="油の交換", source=SOURCE, pages=(5,), language="ja"),
    ]
    write_questions(written, path)
    with path.open("a", encoding="utf-8") as file:
        file.write('\n{"question": "Where is the seal?", "source": "s3://manuals/pump.pdf", "page": 9}\n')
    assert read_questions(path) == [*written, Question(question="Where is the seal?", source=SOURCE, pages=(9,))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "line 2: Invalid JSON"),
        ('{"question": "x", "source": "s"}', "line 2: pages: Field required"),
        ('{"question": "x", "source": "s", "page": 0}', "line 2: Value error, a question has words, and pages"),
        ('{"question": " ", "source": "s", "page": 1}', "line 2: Value error, a question has words, and pages"),
        ('{"question": "x", "source": "s", "pages": []}', "line 2: pages: Tuple should have at least 1 item"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"question": "x", "source": "s", "page": 1}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(QuestionSetRefused, match=message):
        read_questions(path)


def test_a_missing_or_empty_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuestionSetRefused, match="cannot be read"):
        read_questions(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(QuestionSetRefused, match="holds no question"):
        read_questions(tmp_path / "empty.jsonl")


def manual_with_index() -> DoclingDocument:
    document = empty_document(12)
    document.add_table(
        data=table_data(
            [
                ["1 Introduction", "1"],
                ["2.1 Changing the gearbox oil", "3"],
                ["Chapter 3. Fault codes of the pump", "5"],
                ["第3章 油の交換と点検", "6"],
                ["4 Dismantling and disposal", "99"],
                ["Glossary of all terms", "iv"],
            ]
        ),
        label=DocItemLabel.DOCUMENT_INDEX,
        prov=provenance(1, 100, 300),
    )
    document.add_heading("Index of forms", level=1, prov=provenance(3, 80, 100))
    document.add_text(label=DocItemLabel.TEXT, text="Not an index, 3", prov=provenance(3, 120, 140))
    document.add_heading("Index", level=1, prov=provenance(12, 80, 100))
    document.add_heading("B", level=2, prov=provenance(12, 110, 120))
    document.add_text(
        label=DocItemLabel.TEXT,
        text="bearing, 3, 5 bleeding valve . . . . 4-6 Bolts, 1, 2, 3, 4, 5, 6",
        prov=provenance(12, 130, 160),
    )
    document.add_table(data=table_data([["torque wrench", "7"], ["of bolts", "7"]]), prov=provenance(12, 200, 240))
    document.add_heading("Colophon", level=1, prov=provenance(12, 300, 320))
    document.add_text(label=DocItemLabel.TEXT, text="printed matter, 3", prov=provenance(12, 330, 340))
    return document


def test_contents_and_index_become_questions_with_the_pages_of_the_file() -> None:
    labels = {1: "iii", 2: "iv", **{number: str(number - 2) for number in range(3, 13)}}
    made = questions_of(manual_with_index(), labels, SOURCE)
    assert [(each.question, each.pages, each.kind) for each in made] == [
        ("Changing the gearbox oil", (5,), "contents"),
        ("Fault codes of the pump", (7,), "contents"),
        ("油の交換と点検", (8,), "contents"),
        ("Glossary of all terms", (2,), "contents"),
        ("bearing", (5, 7), "index"),
        ("bleeding valve", (6, 7, 8), "index"),
        ("torque wrench", (9,), "index"),
    ]
    assert {each.source for each in made} == {SOURCE}


def test_a_manual_without_contents_and_index_gives_no_question() -> None:
    assert questions_of(empty_document(3), {1: "1", 2: "2"}, SOURCE) == []
