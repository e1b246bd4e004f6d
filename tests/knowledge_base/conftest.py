"""A small manual as a real DoclingDocument, the packaged model, and a knowledge base on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from docling_core.types.doc import DoclingDocument

from knowledge_base.embedding import Embedder
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase, QdrantOptions, open_knowledge_base
from tests.knowledge_base.builders import Loader, build_manual


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    return Embedder(thread_count=1)


@pytest.fixture(scope="session")
def sparse_encoder() -> SparseEncoder:
    return SparseEncoder()


@pytest.fixture
def manual() -> DoclingDocument:
    return build_manual()


@pytest.fixture
def options(tmp_path: Path) -> QdrantOptions:
    return QdrantOptions(path=tmp_path / "qdrant", lock_timeout_s=0.2, upload_batch_size=2)


@pytest.fixture
def knowledge_base(
    options: QdrantOptions, embedder: Embedder, sparse_encoder: SparseEncoder
) -> Iterator[KnowledgeBase]:
    with open_knowledge_base(options) as opened:
        opened.ensure_collection(embedder, sparse_encoder)
        yield opened


@pytest.fixture(scope="session")
def load(embedder: Embedder, sparse_encoder: SparseEncoder) -> Loader:
    return Loader(embedder, sparse_encoder)
