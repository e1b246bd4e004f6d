"""Everything a stage needs to work: settings, the object store and what lies in it, models and the knowledge base.

Models are made on first use and kept, so that a stage that finds its result ready loads none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ingestion.artifacts import Artifacts
from ingestion.corrections import CorrectionStore
from ingestion.errors import ServiceUnavailable, SettingsError
from ingestion.job import JobOptions, SourceRef
from ingestion.manifest import Manifests
from ingestion.object_store import Download, ObjectStore
from ingestion.settings import Settings

if TYPE_CHECKING:
    from knowledge_base.embedding import Embedder
    from knowledge_base.reranking import Reranker
    from knowledge_base.sparse import SparseEncoder
    from knowledge_base.store import KnowledgeBase
    from ocr2_core.engine import Engine
    from ocr2_core.reading import ReadingOptions
    from ocr2_core.triage import Limits


class Workspace:
    """Use as a context manager, or call `close` when done."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._engines: dict[str, Engine] = {}

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the engines' models."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()

    @cached_property
    def store(self) -> ObjectStore:
        return ObjectStore.connect(self.settings)

    @cached_property
    def artifacts(self) -> Artifacts:
        return Artifacts(self.store, self.settings.artifact_bucket)

    @cached_property
    def manifests(self) -> Manifests:
        return Manifests(self.store, self.settings.artifact_bucket)

    @cached_property
    def corrections(self) -> CorrectionStore:
        return CorrectionStore(self.store, self.settings.artifact_bucket)

    def ensure_buckets(self) -> None:
        self.store.ensure_bucket(self.settings.source_bucket)
        self.store.ensure_bucket(self.settings.artifact_bucket)

    @contextmanager
    def downloaded(self, source: SourceRef) -> Iterator[tuple[Path, Download]]:
        """The source's bytes in a temporary file whose name owes nothing to the object's key."""
        with TemporaryDirectory(prefix="ocr2kb-") as folder:
            path = Path(folder) / "source"
            with path.open("wb") as target:
                download = self.store.download(source.bucket, source.key, target)
            yield path, download

    @cached_property
    def limits(self) -> Limits:
        from ocr2_core.triage import Limits

        settings = self.settings
        return Limits(
            max_file_bytes=settings.max_file_bytes,
            max_page_count=settings.max_page_count,
            render_timeout_s=settings.render_timeout_s,
            memory_limit_bytes=settings.render_memory_bytes,
            dpi=settings.dpi,
        )

    def reading_options(self, options: JobOptions) -> ReadingOptions:
        from ocr2_core.reading import ReadingOptions

        return ReadingOptions(ocr=options.ocr or self.settings.ocr, limits=self.limits)

    def engine(self, options: JobOptions) -> Engine:
        """The engine that reads scanned pages."""
        return self._named_engine(options.engine or self.settings.engine)

    def text_layer_engine(self) -> Engine:
        """The engine that reads pages whose PDF text layer is sound."""
        return self._named_engine("text_layer")

    def _named_engine(self, name: str) -> Engine:
        from ocr2_core.engines import create_engine

        if name not in self._engines:
            self._engines[name] = create_engine(name, **self._engine_options(name))
        return self._engines[name]

    def _engine_options(self, name: str) -> dict[str, Any]:
        """What the settings say of this engine, in its constructor's words."""
        settings = self.settings
        if name == "served":
            if settings.served_url is None:
                raise SettingsError("the engine `served` needs OCR2KB_SERVED_URL, such as http://127.0.0.1:8000/v1")
            return {
                "base_url": settings.served_url,
                "model": settings.served_model,
                "api_key": settings.served_api_key.get_secret_value() if settings.served_api_key else None,
                "pages_per_request": settings.served_pages_per_request,
                "max_concurrency": settings.served_max_concurrency,
                "timeout_s": settings.served_timeout_s,
                "sglang_logit_processor": settings.served_sglang_logit_processor,
            }
        if name == "ocr2":
            return {
                "model_path": settings.model_path,
                "revision": settings.model_revision,
                "model_sha256": settings.model_sha256,
                "preset": settings.preset,
                "page_chunk_size": settings.page_chunk_size,
                "chunk_overlap": settings.chunk_overlap,
                "boundary": settings.boundary,
                "kv_cache_watermark": settings.kv_cache_watermark,
                "kv_cache_bytes": settings.kv_cache_bytes,
                "max_concurrency": settings.max_concurrency,
                "max_page_tokens": settings.max_page_tokens,
                "timeout_seconds": settings.timeout_seconds,
                "device": settings.device,
                "dtype": settings.dtype,
                "thread_count": settings.ocr_thread_count,
            }
        return {"thread_count": settings.ocr_thread_count, "cache_dir": settings.cache_dir.expanduser()}

    @cached_property
    def embedder(self) -> Embedder:
        from knowledge_base.embedding import Embedder

        return Embedder(self.settings.embedding_model, thread_count=self.settings.embedding_thread_count)

    @cached_property
    def sparse_encoder(self) -> SparseEncoder:
        from knowledge_base.sparse import SparseEncoder

        return SparseEncoder()

    @cached_property
    def reranker(self) -> Reranker | None:
        """What orders the best hits anew, where the settings name a model."""
        from knowledge_base.reranking import Reranker

        settings = self.settings
        if settings.reranker_model is None:
            return None
        return Reranker(settings.reranker_model, candidate_count=settings.reranker_candidates)

    @contextmanager
    def open_knowledge_base(self, collection: str | None = None) -> Iterator[KnowledgeBase]:
        """The knowledge base, open: what readers see, or a `collection` by name that may not be live. The local index
        is locked meanwhile: keep it short.

        Raises ServiceUnavailable for an outage, at opening and inside.
        """
        from knowledge_base.errors import KnowledgeBaseUnavailable
        from knowledge_base.store import QdrantOptions, open_knowledge_base

        settings = self.settings
        api_key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
        options = QdrantOptions(
            path=None if settings.qdrant_url else settings.local_index_path,
            url=settings.qdrant_url,
            api_key=api_key,
            timeout_s=settings.qdrant_timeout_s,
            prefer_grpc=settings.qdrant_prefer_grpc,
            upload_batch_size=settings.qdrant_upload_batch_size,
            vectors_on_disk=settings.qdrant_vectors_on_disk,
            sparse_index_on_disk=settings.qdrant_vectors_on_disk,
            quantization=settings.qdrant_quantization,
            shard_count=settings.qdrant_shard_count,
            replication_factor=settings.qdrant_replication_factor,
            write_consistency_factor=settings.qdrant_write_consistency_factor,
            collection=collection or settings.collection,
        )
        try:
            with open_knowledge_base(options) as knowledge_base:
                yield knowledge_base
        except KnowledgeBaseUnavailable as error:
            raise ServiceUnavailable(
                "knowledge base", f"{error}.", "Check that Qdrant runs and is not locked."
            ) from error
