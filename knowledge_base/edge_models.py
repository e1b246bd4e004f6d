"""qdrant-client's requests in the words of Qdrant Edge, the engine in this process.

Only what this package and its readers ask for is translated; anything else raises NotImplementedError by name, so that
no condition is ever left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import qdrant_edge as edge
from qdrant_client import models

# what Qdrant's server takes where a request names none
_RRF_K = 2


def edge_filter(given: models.Filter | None) -> edge.Filter | None:
    """A filter with all its conditions."""
    if given is None:
        return None
    if given.min_should is not None:
        raise _unknown("min_should")
    return edge.Filter(
        must=_conditions(given.must), should=_conditions(given.should), must_not=_conditions(given.must_not)
    )


def edge_points(points: Iterable[models.PointStruct]) -> list[edge.Point]:
    """Points with named vectors."""
    return [_point(point) for point in points]


def edge_query(
    query: Any, using: str | None, prefetch: Sequence[models.Prefetch], filter_: models.Filter | None, **rest: Any
) -> edge.QueryRequest:
    """A query; with prefetches their fusion. `rest`: limit, offset, with_payload, with_vector, score_threshold."""
    return edge.QueryRequest(
        query=_scoring(query, using),
        prefetches=[_prefetch(each) for each in prefetch] or None,
        filter=edge_filter(filter_),
        **rest,
    )


def edge_index(schema: Any) -> Any:
    """Parameters of a payload index."""
    if isinstance(schema, models.KeywordIndexParams):
        return edge.KeywordIndexParams(is_tenant=schema.is_tenant, prefix=schema.prefix)
    if isinstance(schema, models.IntegerIndexParams):
        return edge.IntegerIndexParams(lookup=schema.lookup, range=schema.range)
    if isinstance(schema, models.DatetimeIndexParams):
        return edge.DatetimeIndexParams()
    raise _unknown(f"payload index {type(schema).__name__}")


def edge_config(config: models.CreateCollection) -> edge.EdgeConfig:
    """A collection's vectors. Everything is kept on disk and mapped into memory."""
    if not isinstance(config.vectors, dict):
        raise _unknown("a collection without named vectors")
    return edge.EdgeConfig(
        vectors={
            name: edge.EdgeVectorParams(size=params.size, distance=getattr(edge.Distance, params.distance.value))
            for name, params in config.vectors.items()
        },
        sparse_vectors={
            name: edge.EdgeSparseVectorParams(
                modifier=edge.Modifier.Idf if params.modifier is models.Modifier.IDF else None
            )
            for name, params in (config.sparse_vectors or {}).items()
        },
        on_disk_payload=True,
    )


def selected(selector: Any) -> tuple[list[Any] | None, edge.Filter | None]:
    """The points of a selector: ids, or a filter."""
    if isinstance(selector, models.FilterSelector):
        return None, edge_filter(selector.filter)
    if isinstance(selector, models.Filter):
        return None, edge_filter(selector)
    ids = selector.points if isinstance(selector, models.PointIdsList) else selector
    return [_id(each) for each in ids], None


def scored_point(point: edge.ScoredPoint) -> models.ScoredPoint:
    """A hit."""
    return models.ScoredPoint(
        id=str(point.id),
        version=point.version,
        score=point.score,
        payload=point.payload,
        vector=_told_vectors(point.vector),
    )


def record(found: edge.Record) -> models.Record:
    """A stored point."""
    return models.Record(id=str(found.id), payload=found.payload, vector=_told_vectors(found.vector))


def _point(point: models.PointStruct) -> edge.Point:
    if not isinstance(point.vector, dict):
        raise _unknown("a point without named vectors")
    vectors = {name: _vector(vector) for name, vector in point.vector.items()}
    return edge.Point(id=_id(point.id), vector=vectors, payload=point.payload or {})


def _scoring(query: Any, using: str | None) -> Any:
    if query is None:
        return None
    if isinstance(query, models.FusionQuery) and query.fusion is models.Fusion.RRF:
        return edge.Fusion.Rrf(k=_RRF_K)
    if isinstance(query, models.RrfQuery):
        return edge.Fusion.Rrf(k=query.rrf.k or _RRF_K, weights=query.rrf.weights)
    if isinstance(query, models.NearestQuery) and query.mmr is None:
        query = query.nearest
    if isinstance(query, list | models.SparseVector):
        return edge.Query.Nearest(_vector(query), using=using)
    raise _unknown(f"query {type(query).__name__}")


def _prefetch(given: models.Prefetch) -> edge.Prefetch:
    nested = given.prefetch or []
    return edge.Prefetch(
        limit=given.limit or 10,
        query=_scoring(given.query, given.using),
        prefetches=[_prefetch(each) for each in (nested if isinstance(nested, list) else [nested])] or None,
        filter=edge_filter(given.filter),
        score_threshold=given.score_threshold,
    )


def _conditions(given: Any) -> list[Any] | None:
    if given is None:
        return None
    return [_condition(each) for each in (given if isinstance(given, list) else [given])]


def _condition(given: Any) -> Any:
    if isinstance(given, models.Filter):
        return edge_filter(given)
    if isinstance(given, models.IsEmptyCondition):
        return edge.IsEmptyCondition(given.is_empty.key)
    if isinstance(given, models.HasIdCondition):
        return edge.HasIdCondition({_id(each) for each in given.has_id})
    if isinstance(given, models.FieldCondition):
        used = given.model_fields_set - {"key"}
        if used == {"match"}:
            return edge.FieldCondition(key=given.key, match=_match(given.match))
        if used == {"range"}:
            return edge.FieldCondition(key=given.key, range=_range(given.range))
    raise _unknown(f"condition {given!r}")


def _match(given: Any) -> Any:
    if isinstance(given, models.MatchValue):
        return edge.MatchValue(given.value)
    if isinstance(given, models.MatchAny):
        values: Any = list(given.any)
        return edge.MatchAny(values)
    if isinstance(given, models.MatchPrefix):
        return edge.MatchPrefix(given.prefix)
    raise _unknown(f"match {type(given).__name__}")


def _range(given: Any) -> Any:
    bounds = {name: getattr(given, name) for name in ("gte", "gt", "lte", "lt")}
    if isinstance(given, models.DatetimeRange):
        return edge.RangeDateTime(**{name: _iso(value) for name, value in bounds.items()})
    return edge.RangeFloat(**bounds)


def _iso(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, datetime) else value


def _vector(given: Any) -> Any:
    if isinstance(given, models.SparseVector):
        return edge.SparseVector(indices=list(given.indices), values=list(given.values))
    return given


def _told_vectors(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    return {
        name: models.SparseVector(indices=vector.indices, values=vector.values)
        if isinstance(vector, edge.SparseVector)
        else vector
        for name, vector in given.items()
    }


def _id(given: Any) -> Any:
    return given if isinstance(given, int) else str(given)


def _unknown(what: str) -> NotImplementedError:
    return NotImplementedError(f"the embedded index does not know {what}; a Qdrant server does")
