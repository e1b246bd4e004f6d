"""The examples for LangChain and LlamaIndex, run on points as the loader writes them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ingestion.settings import Settings
from ingestion.workspace import Workspace
from knowledge_base.payload import LOADING_SINCE
from knowledge_base.search import SearchFilters, qdrant_filter
from knowledge_base.store import KnowledgeBase
from tests.knowledge_base.builders import Loader, make_chunk, make_revision

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SOURCE = "s3://manuals/mower.pdf"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Workspace, KnowledgeBase]]:
    """Two manuals, and a point of a load that is not finished."""
    with (
        Workspace(Settings.load(state_dir=tmp_path)) as workspace,
        workspace.open_knowledge_base() as knowledge_base,
    ):
        load = Loader(workspace.embedder, workspace.sparse_encoder)
        knowledge_base.ensure_collection(workspace.embedder, workspace.sparse_encoder)
        chunks = [
            make_chunk(0, "Drain the oil while the gearbox is warm.", section_path=["2 Care", "2.1 Oil"], pages=[7]),
            make_chunk(1, "Part E-4071 is the belt.", section_path=["3 Parts"], pages=[9]),
        ]
        load(knowledge_base, make_revision(SOURCE), chunks)
        load(knowledge_base, make_revision("s3://manuals/fan.pdf"), [make_chunk(0, "The fan takes no oil at all.")])
        hidden = make_revision("s3://manuals/new.pdf")
        load(knowledge_base, hidden, [make_chunk(0, "Drain the oil of the new gearbox.")])
        knowledge_base.client.set_payload(
            "manuals", {LOADING_SINCE: "2026-01-01T00:00:00Z"}, points=knowledge_base.point_ids(hidden.source)
        )
        yield workspace, knowledge_base


def test_langchain_finds_cited_passages(opened: tuple[Workspace, KnowledgeBase]) -> None:
    pytest.importorskip("langchain_qdrant")
    store = example("langchain_search").vector_store(*opened)
    shown = {"filter": qdrant_filter(SearchFilters())}
    (first, *others) = store.similarity_search("How is gearbox oil drained?", k=4, **shown)
    assert first.page_content == "Drain the oil while the gearbox is warm."
    assert (first.metadata["source"], first.metadata["pages"]) == (SOURCE, [7])
    assert first.metadata["section_path"] == ["2 Care", "2.1 Oil"]
    assert first.metadata["boxes"] == [{"page_number": 1, "bbox_norm": [10.0, 20.0, 30.0, 40.0]}]
    assert len(others) == 2
    retriever = store.as_retriever(search_kwargs={"k": 1, **shown})
    assert retriever.invoke("E-4071")[0].metadata["pages"] == [9]


def test_llamaindex_finds_cited_passages(opened: tuple[Workspace, KnowledgeBase]) -> None:
    pytest.importorskip("llama_index.vector_stores.qdrant")
    module = example("llamaindex_search")
    (first, *others) = module.retriever(*opened, k=4).retrieve("How is gearbox oil drained?")
    assert first.node.get_content() == "Drain the oil while the gearbox is warm."
    place = module.citation(first)
    assert (place["source"], place["pages"], place["section_path"]) == (SOURCE, [7], ["2 Care", "2.1 Oil"])
    assert len(others) == 2
    only = module.retriever(*opened, SearchFilters(source="s3://manuals/fan.pdf")).retrieve("gearbox oil")
    assert [module.citation(found)["source"] for found in only] == ["s3://manuals/fan.pdf"]
    assert module.citation(module.retriever(*opened, k=1).retrieve("E-4071")[0])["pages"] == [9]
