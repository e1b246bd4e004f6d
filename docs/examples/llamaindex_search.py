"""The knowledge base as a LlamaIndex retriever: hybrid search, with page and box in the metadata.

    pip install llama-index-core llama-index-vector-stores-qdrant
    python docs/examples/llamaindex_search.py "How do I change the oil?"

Settings are those of `ocr2kb`. The filter keeps the points of a load that is under way out of sight.
"""

from __future__ import annotations

import sys
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from llama_index.vector_stores.qdrant import QdrantVectorStore
from pydantic import PrivateAttr

from ingestion.settings import Settings
from ingestion.workspace import Workspace
from knowledge_base.embedding import Embedder
from knowledge_base.search import SearchFilters, qdrant_filter
from knowledge_base.store import KnowledgeBase


class DenseVectors(BaseEmbedding):
    """The knowledge base's own model: a question's vector must come from the model that made the passages'."""

    _embedder: Embedder = PrivateAttr()

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(model_name=embedder.model_name)
        self._embedder = embedder

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embedder.encode_query(query).tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embedder.encode_passages([text])[0].tolist()


def retriever(
    workspace: Workspace, knowledge_base: KnowledgeBase, filters: SearchFilters | None = None, k: int = 3
) -> BaseRetriever:
    """A LlamaIndex retriever over the points as they are."""
    encoder = workspace.sparse_encoder

    def sparse_query(texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        terms = [encoder.encode_query(text) for text in texts]
        return [list(each.indices) for each in terms], [list(each.values) for each in terms]

    store = QdrantVectorStore(
        client=knowledge_base.client,
        collection_name=knowledge_base.options.collection,
        text_key="page_content",
        dense_vector_name="dense",
        sparse_vector_name="sparse",
        enable_hybrid=True,
        sparse_doc_fn=sparse_query,
        sparse_query_fn=sparse_query,
    )
    index = VectorStoreIndex.from_vector_store(store, embed_model=DenseVectors(workspace.embedder))
    return index.as_retriever(
        similarity_top_k=k,
        vector_store_query_mode=VectorStoreQueryMode.HYBRID,
        vector_store_kwargs={"qdrant_filters": qdrant_filter(filters or SearchFilters())},
    )


def citation(found: NodeWithScore) -> dict[str, Any]:
    """Where a passage stands: `source`, `title`, `section_path`, `pages`, `boxes`, … as LlamaIndex nests them."""
    return found.node.metadata["metadata"]


def main() -> None:
    with Workspace(Settings.load()) as workspace, workspace.open_knowledge_base() as knowledge_base:
        for found in retriever(workspace, knowledge_base).retrieve(" ".join(sys.argv[1:])):
            place = citation(found)
            print(place["source"], place["pages"], " › ".join(place["section_path"]))
            print("   ", found.node.get_content()[:200])


if __name__ == "__main__":
    main()
