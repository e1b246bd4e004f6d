"""What stands around a hit: neighbours, whole sections, the outline."""

from __future__ import annotations

import pytest

from knowledge_base.passages import OutlineEntry, neighbours, outline, read_section
from knowledge_base.search import Hit, search
from knowledge_base.store import KnowledgeBase
from tests.knowledge_base.builders import Loader, make_chunk, make_chunks, make_revision

SOURCE = "manuals/pump.pdf"
CHUNKS = [
    ("Foreword.", []),
    ("Open the crate.", ["2 Start"]),
    ("Fill the oil.", ["2 Start", "2.1 Oil"]),
    ("Check the level.", ["2 Start", "2.1 Oil"]),
    ("Turn the key.", ["2 Start", "2.10 Motor"]),
    ("Cut the power.", ["21 Stop"]),
]


@pytest.fixture
def loaded(knowledge_base: KnowledgeBase, load: Loader) -> KnowledgeBase:
    chunks = [make_chunk(index, text, section_path=path) for index, (text, path) in enumerate(CHUNKS)]
    load(knowledge_base, make_revision(), chunks)
    load(knowledge_base, make_revision("manuals/other.pdf"), make_chunks("Fill the oil of the other."))
    load(knowledge_base, make_revision(tenant="red"), make_chunks("Fill the red oil."))
    return knowledge_base


def hit_of(knowledge_base: KnowledgeBase, load: Loader, question: str) -> Hit:
    return search(knowledge_base, load.embedder, load.sparse_encoder, question, k=1)[0]


def texts(knowledge_base: KnowledgeBase, section: str) -> list[str]:
    return [passage.text for passage in read_section(knowledge_base, SOURCE, section)]


def test_neighbours_are_in_order_and_of_the_same_document(loaded: KnowledgeBase, load: Loader) -> None:
    hit = hit_of(loaded, load, "Check the level")
    assert [passage.text for passage in neighbours(loaded, hit, 1)] == [
        "Fill the oil.",
        "Check the level.",
        "Turn the key.",
    ]
    assert [passage.chunk_index for passage in neighbours(loaded, hit, 0)] == [3]
    assert [passage.chunk_index for passage in neighbours(loaded, hit, 20)] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="at least 0"):
        neighbours(loaded, hit, -1)


def test_a_revision_that_went_away_has_no_neighbours(loaded: KnowledgeBase, load: Loader) -> None:
    hit = hit_of(loaded, load, "Check the level")
    load(loaded, make_revision(revision="b" * 64), make_chunks("All new."))
    assert neighbours(loaded, hit, 5) == []


def test_a_section_is_read_with_the_sections_inside_it(loaded: KnowledgeBase) -> None:
    assert texts(loaded, "2 Start") == ["Open the crate.", "Fill the oil.", "Check the level.", "Turn the key."]
    assert texts(loaded, "2.1 Oil") == ["Fill the oil.", "Check the level."]


def test_a_number_alone_finds_its_section_and_no_longer_number(loaded: KnowledgeBase) -> None:
    assert texts(loaded, "2.1") == ["Fill the oil.", "Check the level."]
    assert texts(loaded, "2") == ["Open the crate.", "Fill the oil.", "Check the level.", "Turn the key."]
    assert texts(loaded, "2.10") == ["Turn the key."]
    assert texts(loaded, "21") == ["Cut the power."]
    assert texts(loaded, "3") == []
    assert texts(loaded, "2 St") == []
    assert read_section(loaded, "manuals/none.pdf", "2") == []
    with pytest.raises(ValueError, match="named by its heading"):
        texts(loaded, " ")


def test_of_two_sections_with_one_heading_the_first_is_read(knowledge_base: KnowledgeBase, load: Loader) -> None:
    paths = [["1 Pump", "Overview"], ["1 Pump", "Parts"], ["2 Fan", "Overview"], ["2 Fan"]]
    chunks = [make_chunk(index, f"Text {index}.", section_path=path) for index, path in enumerate(paths)]
    load(knowledge_base, make_revision(), chunks)
    assert texts(knowledge_base, "Overview") == ["Text 0."]
    assert texts(knowledge_base, "2 Fan") == ["Text 2.", "Text 3."]


def test_the_outline_lists_sections_with_text_and_their_first_pages(loaded: KnowledgeBase) -> None:
    assert outline(loaded, SOURCE) == [
        OutlineEntry(section_path=[], page_number=1, chunk_count=1),
        OutlineEntry(section_path=["2 Start"], page_number=2, chunk_count=1),
        OutlineEntry(section_path=["2 Start", "2.1 Oil"], page_number=3, chunk_count=2),
        OutlineEntry(section_path=["2 Start", "2.10 Motor"], page_number=5, chunk_count=1),
        OutlineEntry(section_path=["21 Stop"], page_number=6, chunk_count=1),
    ]
    assert outline(loaded, SOURCE, tenant="blue") == []
    assert [entry.chunk_count for entry in outline(loaded, SOURCE, tenant="red")] == [1]


def test_a_long_document_is_read_in_pages_and_stays_in_order(knowledge_base: KnowledgeBase, load: Loader) -> None:
    load(knowledge_base, make_revision(), make_chunks(*(f"Step {number}." for number in range(300))))
    passages = read_section(knowledge_base, SOURCE, "1 Start")
    assert [passage.chunk_index for passage in passages] == list(range(300))
