"""All settings of ocr2-kb, and the only reader of the environment.

Every field is set by `OCR2KB_<FIELD>` in the environment, in `./.env`, or in `<state_dir>/embedded.env`, which the
embedded services write when they start; the earlier of these wins.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ingestion.errors import SettingsError

EngineName = Literal["auto", "rapidocr", "ocr2", "served"]
OcrMode = Literal["auto", "always"]

EMBEDDED_ENV_FILE = "embedded.env"


class Settings(BaseSettings):
    """See the module's docstring for where values come from; `load` turns wrong ones into a SettingsError."""

    model_config = SettingsConfigDict(env_prefix="OCR2KB_", extra="ignore", frozen=True)

    state_dir: Path = Field(Path(".ocr2kb"), description="Where the embedded services and the local index live.")
    cache_dir: Path = Field(Path("~/.cache/ocr2kb"), description="Compiled models; safe to delete.")

    s3_endpoint: str = Field("http://127.0.0.1:9000", description="URL of the object store, http:// or https://.")
    s3_access_key: str = ""
    s3_secret_key: SecretStr = SecretStr("")
    s3_region: str | None = Field(None, description="Leave empty for MinIO; AWS needs the bucket's region.")
    s3_ca_file: Path | None = Field(None, description="CA certificates (PEM) for a private TLS authority.")
    s3_verify_tls: bool = True
    s3_connect_timeout_s: float = Field(5.0, gt=0)
    s3_read_timeout_s: float = Field(60.0, gt=0)
    s3_part_bytes: int = Field(16 * 2**20, ge=5 * 2**20, description="Size of a part of a multipart upload.")
    source_bucket: str = "manuals"
    artifact_bucket: str = "manuals-artifacts"

    engine: EngineName = Field("auto", description="What reads scanned pages.")
    ocr: OcrMode = Field("auto", description="auto: sound PDF text layers are used; always: every page is recognised.")
    dpi: int = Field(200, ge=72, le=600)
    ocr_thread_count: int | None = Field(None, ge=1, description="CPU threads of the reading engine; default all.")
    served_url: str | None = Field(None, description="The engine `served`: OpenAI-compatible endpoint, ends in /v1.")
    served_model: str = Field("baidu/Unlimited-OCR", description="What the endpoint calls the model.")
    served_api_key: SecretStr | None = None
    served_pages_per_request: int = Field(8, ge=1, description="1: every page alone, at the highest resolution.")
    served_max_concurrency: int = Field(4, ge=1, description="Requests at a time.")
    served_timeout_s: float = Field(600.0, gt=0, description="Longest silence of the server; then it is asked again.")
    served_sglang_logit_processor: str | None = Field(None, description="Keeps SGLang from looping; see docs.")
    model_path: str | None = Field(None, description="The engine `ocr2`: checkpoint folder, or hub id.")
    model_revision: str | None = Field(None, description="Commit, branch or tag of a hub id.")
    model_sha256: dict[str, str] | None = Field(None, description="Digests of the weight files by name, as JSON.")
    preset: Literal["v1-safe", "paper"] = Field("v1-safe", description="Page groups of 12 or of 105 pages.")
    page_chunk_size: int | None = Field(None, ge=1, description="Pages in a group; default: the preset's.")
    chunk_overlap: int | None = Field(None, ge=0, description="Pages shared with the group before; default 1.")
    boundary: Literal["restart", "carry", "recompute"] = Field("restart", description="How a group follows another.")
    kv_cache_watermark: float = Field(0.8, gt=0, le=1, description="Share of the KV pool that new work may fill.")
    kv_cache_bytes: int | None = Field(None, ge=1, description="Size of the KV pool; default: what the work needs.")
    max_concurrency: int = Field(16, ge=1, description="Documents that decode together.")
    max_page_tokens: int = Field(8192, ge=1, description="A page with more text fails as truncated.")
    timeout_seconds: float | None = Field(None, gt=0, description="Longest decoding of one document; default: none.")
    device: str = Field("auto", description="auto takes a GPU where there is one; else cpu, cuda, cuda:1, …")
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    page_group_size: int = Field(8, ge=1, description="Pages stored together; a crash repeats at most one group.")
    max_file_bytes: int = Field(2 * 2**30, ge=1)
    max_page_count: int = Field(5000, ge=1)
    render_timeout_s: float = Field(60.0, gt=0, description="Longest time for opening a file or rendering one page.")
    render_memory_bytes: int = Field(2 * 2**30, ge=256 * 2**20, description="Memory limit of the rendering process.")
    max_failed_page_ratio: float = Field(0.02, ge=0, le=1)

    embedding_model: str | None = Field(None, description="Folder or name; default: the packaged all-MiniLM-L6-v2.")
    embedding_thread_count: int | None = Field(None, ge=1)
    reranker_model: str | None = Field(None, description="Cross-encoder (folder or name) that orders the best hits.")
    reranker_candidates: int = Field(30, ge=1, description="Hits that the reranker looks at.")
    max_chunk_tokens: int | None = Field(None, ge=32, description="Default: the embedding model's limit.")

    qdrant_url: str | None = Field(None, description="URL of a Qdrant server; default: local files.")
    qdrant_api_key: SecretStr | None = None
    qdrant_path: Path | None = Field(None, description="Local index; default <state_dir>/qdrant.")
    qdrant_timeout_s: float = Field(30.0, gt=0)
    qdrant_prefer_grpc: bool = Field(False, description="Send points by gRPC (port 6334), which is quicker.")
    qdrant_upload_batch_size: int = Field(128, ge=1, le=10_000, description="Points a request; each is waited for.")
    qdrant_vectors_on_disk: bool = Field(False, description="New collections: dense vectors are read from disk.")
    qdrant_quantization: Literal["none", "int8"] = Field(
        "none", description="New collections: int8 beside the vectors."
    )
    qdrant_shard_count: int | None = Field(None, ge=1, description="New collections; default: the server's.")
    qdrant_replication_factor: int | None = Field(None, ge=1, description="New collections; default: the server's.")
    qdrant_write_consistency_factor: int | None = Field(None, ge=1, description="Replicas that must confirm a write.")
    collection: str = Field("manuals", pattern=r"^[A-Za-z0-9_-]+$", description="Alias that readers use.")
    tenant: str = Field("default", min_length=1)

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Settings from the environment and the env files, then `overrides` (None means not given).

        Raises SettingsError naming each wrong field.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        state_dir = Path(given.get("state_dir") or os.environ.get("OCR2KB_STATE_DIR") or ".ocr2kb")
        env_files = (state_dir / EMBEDDED_ENV_FILE, Path(".env"))
        try:
            return cls(_env_file=env_files, **given)
        except ValidationError as error:
            wrong = "; ".join(
                f"OCR2KB_{'_'.join(str(part) for part in item['loc']).upper()}: {item['msg']}"
                for item in error.errors(include_url=False, include_input=False)
            )
            raise SettingsError(f"wrong settings: {wrong}") from None

    @model_validator(mode="after")
    def _endpoints_are_urls(self) -> Self:
        for name in ("s3_endpoint", "qdrant_url", "served_url"):
            value = getattr(self, name)
            if value is not None and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).netloc):
                raise ValueError(f"{name} must be a URL such as http://127.0.0.1:9000, not {value!r}")
        return self

    @model_validator(mode="after")
    def _overlap_is_less_than_its_group(self) -> Self:
        size = self.page_chunk_size
        if size is not None and self.chunk_overlap is not None and self.chunk_overlap >= size:
            raise ValueError(f"chunk_overlap ({self.chunk_overlap}) must be less than page_chunk_size ({size})")
        return self

    @property
    def local_index_path(self) -> Path:
        """Where Qdrant's local mode keeps its files."""
        return (self.qdrant_path or self.state_dir / "qdrant").expanduser()
