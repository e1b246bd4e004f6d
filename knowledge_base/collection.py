"""The collection behind the alias: how it is made, and the check that it holds the vectors we are about to use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from knowledge_base.connection import QdrantOptions
from knowledge_base.errors import CollectionMismatch, KnowledgeBaseError
from knowledge_base.payload import DENSE_VECTOR, LOADING_SINCE, SPARSE_VECTOR

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1

_NAMES_FOR_PEOPLE = {"model"}
"""Identity entries that may differ: a renamed folder holds the same model."""


class DenseEncoder(Protocol):
    """What a collection has to know of the dense vectors: `Embedder`."""

    @property
    def dimension(self) -> int: ...

    def identity(self) -> Mapping[str, Any]: ...


class TermEncoder(Protocol):
    """What a collection has to know of the sparse vectors: `SparseEncoder`."""

    def identity(self) -> Mapping[str, Any]: ...


def collection_behind(client: QdrantClient, alias: str) -> str | None:
    """Name of the collection that `alias` points to, None when there is no such alias."""
    return next((each.collection_name for each in client.get_aliases().aliases if each.alias_name == alias), None)


def ensure_collection(
    client: QdrantClient, options: QdrantOptions, embedder: DenseEncoder, sparse_encoder: TermEncoder
) -> str:
    """Make `<alias>__1` with its payload indexes behind the alias if there is none; return the collection's name.

    Safe to call by several processes at once and again after a crash at any of its steps. Raises CollectionMismatch
    when the existing collection was filled with other vectors.
    """
    name = collection_behind(client, options.collection)
    if name is None:
        if client.collection_exists(options.collection):
            raise KnowledgeBaseError(f"{options.place} has a collection named {options.collection}: the alias needs it")
        name = f"{options.collection}__1"
        create_collection(client, name, options, embedder, sparse_encoder)
    check_identity(client, name, embedder, sparse_encoder)
    create_payload_indexes(client, name)
    if collection_behind(client, options.collection) is None:
        # The alias comes last: who sees it sees a finished collection.
        _point_alias(client, options.collection, name)
    return name


def create_collection(
    client: QdrantClient, name: str, options: QdrantOptions, embedder: DenseEncoder, sparse_encoder: TermEncoder
) -> None:
    from qdrant_client import models
    from qdrant_client.http.exceptions import UnexpectedResponse

    if client.collection_exists(name):
        return
    try:
        client.create_collection(
            name,
            vectors_config={
                DENSE_VECTOR: models.VectorParams(
                    size=embedder.dimension, distance=models.Distance.COSINE, on_disk=options.vectors_on_disk
                )
            },
            sparse_vectors_config={
                SPARSE_VECTOR: models.SparseVectorParams(
                    modifier=models.Modifier.IDF,
                    index=models.SparseIndexParams(on_disk=options.sparse_index_on_disk),
                )
            },
            on_disk_payload=options.payload_on_disk,
            quantization_config=_quantization(options),
            shard_number=options.shard_count,
            replication_factor=options.replication_factor,
            write_consistency_factor=options.write_consistency_factor,
            metadata={
                "ocr2kb_schema": SCHEMA_VERSION,
                "dense": dict(embedder.identity()),
                "sparse": dict(sparse_encoder.identity()),
            },
        )
    except UnexpectedResponse as error:
        if error.status_code != 409:  # another process was quicker
            raise
    logger.info("created collection %s with %d dimensions", name, embedder.dimension)


def _quantization(options: QdrantOptions) -> Any:
    from qdrant_client import models

    if options.quantization == "none":
        return None
    # the quantized vectors are what makes the first pass fast, so they stay in memory whatever else does not
    scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
    return models.ScalarQuantization(scalar=scalar)


def _point_alias(client: QdrantClient, alias: str, name: str) -> None:
    from qdrant_client import models

    client.update_collection_aliases(
        [models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name=name, alias_name=alias))]
    )


def check_identity(
    client: QdrantClient, name: str, embedder: DenseEncoder | None, sparse_encoder: TermEncoder | None
) -> None:
    """Raise CollectionMismatch where a collection was filled with other vectors; None is not looked at."""
    differences = identity_differences(client, name, embedder, sparse_encoder)
    if differences:
        raise CollectionMismatch(
            f"collection {name} holds vectors of {model_name(client, name)}, which cannot be mixed with those offered "
            f"now ({'; '.join(differences)}). Use the model and settings it was made with, or re-embed (`ocr2kb "
            "reembed`): that fills a new collection without reading anything again, and switches the alias."
        )


def model_name(client: QdrantClient, name: str) -> str:
    """The embedding model that filled a collection, in words for people."""
    metadata = client.get_collection(name).config.metadata or {}
    return str((metadata.get("dense") or {}).get("model", "an unknown model"))


def identity_differences(
    client: QdrantClient, name: str, embedder: DenseEncoder | None, sparse_encoder: TermEncoder | None
) -> list[str]:
    """In what the vectors of a collection differ from those offered (None: not looked at); empty when they can be
    mixed."""
    config = client.get_collection(name).config
    vectors = config.params.vectors
    stored_size = vectors[DENSE_VECTOR].size if isinstance(vectors, Mapping) and DENSE_VECTOR in vectors else None
    differences = []
    if embedder is not None and stored_size != embedder.dimension:
        differences.append(f"dense dimension: {stored_size} stored, {embedder.dimension} offered")
    metadata = config.metadata or {}
    for part, encoder in (("dense", embedder), ("sparse", sparse_encoder)):
        if encoder is None:
            continue
        offered, stored = encoder.identity(), metadata.get(part)
        if not isinstance(stored, Mapping):
            differences.append(f"{part}: nothing recorded")
            continue
        differences.extend(
            f"{part} {key}: {stored.get(key)!r} stored, {offered.get(key)!r} offered"
            for key in sorted(stored.keys() | offered.keys())
            if key not in _NAMES_FOR_PEOPLE and stored.get(key) != offered.get(key) and key != "dimension"
        )
    return differences


def create_payload_indexes(client: QdrantClient, name: str) -> None:
    """Index what filters use."""
    from qdrant_client import models

    keyword = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD)
    integer = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=True)
    wanted: dict[str, models.KeywordIndexParams | models.IntegerIndexParams] = {
        "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
        "source": keyword,
        "revision": keyword,
        "fingerprint": keyword,
        "section_path": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, prefix=True),
        "labels": keyword,
        "language": keyword,
        "pages": integer,
        "chunk_index": integer,
    }
    fields: dict[str, Any] = {f"metadata.{field}": schema for field, schema in wanted.items()}
    fields[LOADING_SINCE] = models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME)
    present = client.get_collection(name).payload_schema
    for field, schema in fields.items():
        if field not in present:
            client.create_payload_index(name, field_name=field, field_schema=schema, wait=True)
