from __future__ import annotations

from collections.abc import Callable

import pytest

from knowledge_base.chunks import ChunkBox
from knowledge_base.embedding import Embedder
from knowledge_base.errors import CollectionMismatch
from knowledge_base.search import Hit, SearchFilters, search
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase
from tests.knowledge_base.builders import Loader, make_chunk, make_chunks, make_revision

Search = Callable[..., list[Hit]]


@pytest.fixture
def find(knowledge_base: KnowledgeBase, embedder: Embedder, sparse_encoder: SparseEncoder) -> Search:
    def run(query: str, **options: object) -> list[Hit]:
        return search(knowledge_base, embedder, sparse_encoder, query, **options)  # type: ignore[arg-type]

    return run


def test_a_hit_cites_section_page_and_box(knowledge_base: KnowledgeBase, load: Loader, find: Search) -> None:
    chunk = make_chunk(
        0,
        "Drain the oil while the gearbox is warm.",
        section_path=["2 Care", "2.3 Oil"],
        pages=[7, 8],
        boxes=[ChunkBox(page_number=7, bbox_norm=(1, 2, 3, 4)), ChunkBox(page_number=8, bbox_norm=(5, 6, 7, 8))],
    )
    load(knowledge_base, make_revision(), [chunk])
    (hit,) = find("How do I change gearbox oil?", with_ranks=True)
    assert hit.source == "manuals/pump.pdf"
    assert hit.title == "Pump"
    assert hit.section_path == ["2 Care", "2.3 Oil"]
    assert hit.pages == [7, 8]
    assert hit.boxes == chunk.boxes
    assert hit.text == "Drain the oil while the gearbox is warm."
    assert (hit.chunk_index, hit.revision, hit.tenant) == (0, "a" * 64, "default")
    assert (hit.dense_rank, hit.sparse_rank) == (1, 1)
    assert find("gearbox oil")[0].dense_rank is None


def test_dense_finds_meaning_without_a_common_word(knowledge_base: KnowledgeBase, load: Loader, find: Search) -> None:
    load(
        knowledge_base,
        make_revision(),
        make_chunks("The vehicle will not start.", "Store the batteries in a dry room.", "The warranty is two years."),
    )
    assert find("car engine does not turn on", mode="dense", k=1)[0].chunk_index == 0
    assert find("zzz qqq", mode="sparse") == []


def test_hybrid_finds_an_exact_code_that_dense_misses(
    knowledge_base: KnowledgeBase, load: Loader, find: Search
) -> None:
    fault = "Error {}: the controller reports a fault. Switch the unit off, wait a minute, and switch it on again."
    codes = ["E-4017", "E-4170", "E-4701", "E-7041", "E-1407", "E-4107", "E-1047", "E-7014"]
    load(
        knowledge_base,
        make_revision(),
        [
            *make_chunks(*(fault.format(code) for code in codes)),
            make_chunk(
                8, "Spare parts list: gasket 12 mm, spring, bracket, seal kit. Alarm E-4071 is cleared by hand."
            ),
        ],
    )
    query = "controller reports fault E-4071, switch off?"
    dense = find(query, mode="dense", k=9)
    assert dense[-1].chunk_index == 8
    assert 8 in [hit.chunk_index for hit in find("E-4071", mode="sparse", k=1)]
    assert 8 in [hit.chunk_index for hit in find(query)]


def test_every_filter(knowledge_base: KnowledgeBase, load: Loader, find: Search) -> None:
    load(
        knowledge_base,
        make_revision("manuals/pump.pdf"),
        [
            make_chunk(0, "pump start", section_path=["1 Installation", "1.1 Tools"], pages=[2, 3]),
            make_chunk(1, "pump table", section_path=["2 Data"], pages=[9], labels=["caption", "table"]),
            make_chunk(2, "Pumpe starten", section_path=["3 Deutsch"], pages=[20], language="de"),
        ],
    )
    load(knowledge_base, make_revision("manuals/fan.pdf"), make_chunks("pump of the fan"))
    load(knowledge_base, make_revision(tenant="red"), make_chunks("secret pump"))

    def texts(**conditions: object) -> set[str]:
        found = [find("pump", k=10, mode=mode, filters=SearchFilters(**conditions)) for mode in ("hybrid", "dense")]  # type: ignore[arg-type]
        assert {hit.text for hit in found[0]} == {hit.text for hit in found[1]}
        return {hit.text for hit in found[0]}

    assert texts() == {"pump start", "pump table", "Pumpe starten", "pump of the fan"}
    assert {hit.text for hit in find("pump", k=10)} == texts()
    assert texts(source="manuals/fan.pdf") == {"pump of the fan"}
    assert texts(source=("manuals/fan.pdf", "nothing")) == {"pump of the fan"}
    assert texts(tenant="red") == {"secret pump"}
    assert len(texts(tenant=None)) == 5
    assert texts(pages=(3, 8)) == {"pump start"}
    assert texts(pages=(4, 8)) == set()
    assert texts(pages=(9, 30)) == {"pump table", "Pumpe starten"}
    assert texts(language="de") == {"Pumpe starten"}
    assert texts(labels=("table", "code")) == {"pump table"}
    assert texts(section="1 Inst") == {"pump start"}
    assert texts(section="1.1") == {"pump start"}
    assert texts(section="Tools") == set()
    assert texts(source="manuals/pump.pdf", language="en", pages=(1, 5)) == {"pump start"}


def test_a_search_during_a_load_sees_the_old_revision_alone(
    knowledge_base: KnowledgeBase, load: Loader, find: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(knowledge_base, make_revision(), make_chunks("Close the red valve."))
    seen: list[list[str]] = []
    client = knowledge_base.client

    def watch(name: str) -> None:
        original = getattr(client, name)

        def watched(*args: object, **kwargs: object) -> object:
            seen.append([hit.text for hit in find("red valve")])
            return original(*args, **kwargs)

        monkeypatch.setattr(client, name, watched)

    watch("upsert")
    watch("batch_update_points")
    load(knowledge_base, make_revision(revision="b" * 64), make_chunks("Close the red valve slowly."))
    assert seen == [["Close the red valve."]] * 2
    assert [hit.text for hit in find("red valve")] == ["Close the red valve slowly."]


def test_bad_questions_are_refused(find: Search) -> None:
    with pytest.raises(ValueError, match="needs a question"):
        find("  ")
    with pytest.raises(ValueError, match="k of at least 1"):
        find("pump", k=0)
    with pytest.raises(ValueError, match="first and last page"):
        SearchFilters(pages=(5, 2))
    with pytest.raises(ValueError, match="extra"):
        SearchFilters(page=3)  # type: ignore[call-arg]


def test_a_search_with_another_model_is_refused(
    knowledge_base: KnowledgeBase, load: Loader, embedder: Embedder, sparse_encoder: SparseEncoder
) -> None:
    load(knowledge_base, make_revision(), make_chunks("Drain the oil."))
    prompted = Embedder(query_prompt="query: ", passage_prompt="passage: ")
    with pytest.raises(CollectionMismatch, match="dense passage_prompt: '' stored, 'passage: ' offered"):
        search(knowledge_base, prompted, sparse_encoder, "oil")
    with pytest.raises(CollectionMismatch, match=r"sparse k1: 1\.2 stored, 2\.0 offered"):
        search(knowledge_base, embedder, SparseEncoder(k1=2.0), "oil")
    # a search by words alone asks nothing of the dense model
    assert [hit.text for hit in search(knowledge_base, prompted, sparse_encoder, "oil", mode="sparse")]
    assert [hit.text for hit in search(knowledge_base, embedder, SparseEncoder(k1=2.0), "oil", mode="dense")]
