"""The embedded index: qdrant-client's local mode with Qdrant Edge, Qdrant's own engine, in place of its Python one.

Local mode keeps the catalogue (collections, their settings, aliases) and the folder's lock; points live in an Edge
shard inside the collection's folder, with payload indexes. So a reader opens 50,000 points without reading them all,
and a search costs milliseconds (benchmarks/LOG.md). One process at a time, as before.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import qdrant_edge as edge
from qdrant_client import QdrantClient, models
from qdrant_client.http.models import QueryResponse
from qdrant_client.local.local_collection import LocalCollection
from qdrant_client.local.qdrant_local import QdrantLocal

from knowledge_base.edge_models import (
    edge_config,
    edge_filter,
    edge_index,
    edge_points,
    edge_query,
    record,
    scored_point,
    selected,
)
from knowledge_base.errors import EmbeddedIndexError

_SHARD_FOLDER = "edge"


def open_embedded(path: Path) -> QdrantClient:
    """A client of the index in this folder, which is made if it is not there."""
    # the client makes its own local mode by itself and takes no other: ours is put in its place
    client = QdrantClient(":memory:")
    client.close()
    client._client = _EmbeddedQdrant(str(path))
    return client


class _EmbeddedQdrant(QdrantLocal):
    def __init__(self, location: str) -> None:
        self._shards: dict[str, EdgeCollection] = {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Local mode is not recommended for collections")
            super().__init__(location)

    def _get_collection(self, collection_name: str) -> Any:
        catalogued = super()._get_collection(collection_name)
        name = self.aliases.get(collection_name, collection_name)
        if name not in self._shards:
            folder = Path(str(self._collection_path(name))) / _SHARD_FOLDER
            self._shards[name] = EdgeCollection(folder, catalogued)
        return self._shards[name]

    def create_payload_index(
        self, collection_name: str, field_name: str, field_schema: Any = None, field_type: Any = None, **_: Any
    ) -> models.UpdateResult:
        self._get_collection(collection_name).create_payload_index(field_name, field_schema or field_type)
        return self._default_update_result()

    def delete_collection(self, collection_name: str, **kwargs: Any) -> bool:
        shard = self._shards.pop(collection_name, None)
        if shard is not None:
            shard.close()
        return super().delete_collection(collection_name, **kwargs)

    def close(self, **kwargs: Any) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()
        super().close(**kwargs)


class EdgeCollection:
    """What local mode asks of a collection, answered by an Edge shard. Methods that are not here are not known."""

    def __init__(self, folder: Path, catalogued: LocalCollection) -> None:
        self._catalogued = catalogued
        if folder.is_dir() and any(folder.iterdir()):
            with _translated_errors():
                self._shard = edge.EdgeShard.load(str(folder))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            with _translated_errors():
                self._shard = edge.EdgeShard.create(str(folder), edge_config(catalogued.config))

    @property
    def config(self) -> models.CreateCollection:
        return self._catalogued.config

    def close(self) -> None:
        self._shard.close()

    def info(self) -> models.CollectionInfo:
        with _translated_errors():
            found = self._shard.info()
        schema = {
            name: models.PayloadIndexInfo(
                data_type=str(index.data_type).rpartition(".")[2].lower(), points=index.points
            )
            for name, index in found.payload_schema.items()
        }
        return self._catalogued.info().model_copy(update={"points_count": found.points_count, "payload_schema": schema})

    def create_payload_index(self, field_name: str, schema: Any) -> None:
        self._update(edge.UpdateOperation.create_field_index(field_name, edge_index(schema)))

    def upsert(self, points: Any, update_filter: Any = None, update_mode: models.UpdateMode | None = None) -> None:
        listed = points.points if isinstance(points, models.PointsList) else points
        mode = edge.UpdateMode.InsertOnly if update_mode is models.UpdateMode.INSERT_ONLY else edge.UpdateMode.Upsert
        self._update(
            edge.UpdateOperation.upsert_points(
                edge_points(listed), condition=edge_filter(update_filter), update_mode=mode
            )
        )

    def delete(self, selector: Any) -> None:
        ids, wanted = selected(selector)
        if wanted is not None:
            self._update(edge.UpdateOperation.delete_points_by_filter(wanted))
        elif ids:
            self._update(edge.UpdateOperation.delete_points(ids))

    def set_payload(self, payload: dict[str, Any], selector: Any, key: str | None = None) -> None:
        ids, wanted = selected(selector)
        if wanted is not None:
            self._update(edge.UpdateOperation.set_payload_by_filter(wanted, payload, key))
        elif ids:
            self._update(edge.UpdateOperation.set_payload(ids, payload, key))

    def delete_payload(self, keys: Sequence[str], selector: Any) -> None:
        ids, wanted = selected(selector)
        if wanted is not None:
            self._update(edge.UpdateOperation.delete_payload_by_filter(wanted, list(keys)))
        elif ids:
            self._update(edge.UpdateOperation.delete_payload(ids, list(keys)))

    def batch_update_points(self, operations: Sequence[Any]) -> None:
        for each in operations:
            if isinstance(each, models.DeletePayloadOperation):
                wanted = each.delete_payload
                self.delete_payload(wanted.keys, _selector(wanted))
            elif isinstance(each, models.SetPayloadOperation):
                self.set_payload(each.set_payload.payload, _selector(each.set_payload), each.set_payload.key)
            elif isinstance(each, models.DeleteOperation):
                self.delete(each.delete)
            elif isinstance(each, models.UpsertOperation):
                self.upsert(each.upsert)
            else:
                raise NotImplementedError(f"the embedded index does not know {type(each).__name__} in a batch")
        # what readers now see must outlive the machine, not only this process
        with _translated_errors():
            self._shard.flush()

    def count(self, count_filter: models.Filter | None = None) -> models.CountResult:
        request = edge.CountRequest(exact=True, filter=edge_filter(count_filter))
        with _translated_errors():
            return models.CountResult(count=self._shard.count(request))

    def scroll(
        self,
        scroll_filter: models.Filter | None = None,
        limit: int = 10,
        order_by: Any = None,
        offset: Any = None,
        with_payload: Any = True,
        with_vectors: Any = False,
    ) -> tuple[list[models.Record], Any]:
        if order_by is not None:
            raise NotImplementedError("the embedded index scrolls in the order of ids only")
        request = edge.ScrollRequest(
            offset=None if offset is None else str(offset),
            limit=limit,
            filter=edge_filter(scroll_filter),
            with_payload=with_payload,
            with_vector=with_vectors,
        )
        with _translated_errors():
            found, following = self._shard.scroll(request)
        return [record(each) for each in found], None if following is None else str(following)

    def retrieve(self, ids: Sequence[Any], with_payload: Any = True, with_vectors: Any = False) -> list[models.Record]:
        with _translated_errors():
            found = self._shard.retrieve([str(each) for each in ids], with_payload, with_vectors)
        return [record(each) for each in found]

    def query_points(
        self,
        query: Any = None,
        prefetch: Sequence[models.Prefetch] = (),
        query_filter: models.Filter | None = None,
        using: str | None = None,
        score_threshold: float | None = None,
        limit: int = 10,
        offset: int = 0,
        with_payload: Any = True,
        with_vectors: Any = False,
        search_params: Any = None,  # noqa: ARG002 - a search is exact here
    ) -> QueryResponse:
        request = edge_query(
            query,
            using,
            prefetch,
            query_filter,
            limit=limit,
            offset=offset,
            score_threshold=score_threshold,
            with_payload=with_payload,
            with_vector=with_vectors,
        )
        with _translated_errors():
            found = self._shard.query(request)
        return QueryResponse(points=[scored_point(each) for each in found])

    def _update(self, operation: edge.UpdateOperation) -> None:
        with _translated_errors():
            self._shard.update(operation)


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # the engine raises nothing more telling than Exception itself
        if type(error) is not Exception:
            raise
        raise EmbeddedIndexError(str(error)) from error


def _selector(given: Any) -> Any:
    return models.FilterSelector(filter=given.filter) if given.filter is not None else given.points
