"""The knowledge base as a LangChain vector store: hybrid search, with page and box in the metadata.

    pip install langchain-qdrant
    python docs/examples/langchain_search.py "How do I change the oil?"

Settings are those of `ocr2kb`. The filter keeps the points of a load that is under way out of sight.
"""

from __future__ import annotations

import sys

from langchain_core.embeddings import Embeddings
from langchain_qdrant import QdrantVectorStore, RetrievalMode
from langchain_qdrant.sparse_embeddings import SparseEmbeddings, SparseVector

from ingestion.settings import Settings
from ingestion.workspace import Workspace
from knowledge_base.embedding import Embedder
from knowledge_base.search import SearchFilters, qdrant_filter
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase


class DenseVectors(Embeddings):
    """The knowledge base's own model: a question's vector must come from the model that made the passages'."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def embed_query(self, text: str) -> list[float]:
        return self._embedder.encode_query(text).tolist()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._embedder.encode_passages(texts).tolist()


class SparseVectors(SparseEmbeddings):
    """BM25 terms of questions."""

    def __init__(self, encoder: SparseEncoder) -> None:
        self._encoder = encoder

    def embed_query(self, text: str) -> SparseVector:
        terms = self._encoder.encode_query(text)
        return SparseVector(indices=list(terms.indices), values=list(terms.values))

    def embed_documents(self, texts: list[str]) -> list[SparseVector]:
        raise NotImplementedError("documents are loaded by `ocr2kb ingest`")


def vector_store(workspace: Workspace, knowledge_base: KnowledgeBase) -> QdrantVectorStore:
    """A LangChain store over the points as they are."""
    return QdrantVectorStore(
        client=knowledge_base.client,
        collection_name=knowledge_base.options.collection,
        embedding=DenseVectors(workspace.embedder),
        sparse_embedding=SparseVectors(workspace.sparse_encoder),
        retrieval_mode=RetrievalMode.HYBRID,
        vector_name="dense",
        sparse_vector_name="sparse",
    )


def main() -> None:
    with Workspace(Settings.load()) as workspace, workspace.open_knowledge_base() as knowledge_base:
        store = vector_store(workspace, knowledge_base)
        retriever = store.as_retriever(search_kwargs={"k": 3, "filter": qdrant_filter(SearchFilters())})
        for document in retriever.invoke(" ".join(sys.argv[1:])):
            place = document.metadata
            print(place["source"], place["pages"], " › ".join(place["section_path"]))
            print("   ", document.page_content[:200])


if __name__ == "__main__":
    main()
