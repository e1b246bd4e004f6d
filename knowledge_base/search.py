"""Cited search: dense and sparse results fused by the store, each hit with section path, pages and boxes."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from knowledge_base.chunks import ChunkBox
from knowledge_base.payload import DEFAULT_TENANT, DENSE_VECTOR, SPARSE_VECTOR, matches, shown

if TYPE_CHECKING:
    from knowledge_base.embedding import Embedder
    from knowledge_base.reranking import Reranker
    from knowledge_base.sparse import SparseEncoder
    from knowledge_base.store import KnowledgeBase

SearchMode = Literal["hybrid", "dense", "sparse"]

_MIN_CANDIDATES = 50
_CANDIDATES_PER_RESULT = 4
# Reciprocal rank fusion (Cormack et al., 2009) as Qdrant does it: the sum of 1 / (rank / weight + k - 1). Its own k, 2,
# all but takes turns between the searches; benchmarks/LOG.md compares k from 2 to 11 and weights from 1 to 4. With
# larger ones, what holds an exact code but reads otherwise falls behind.
_RRF_K = 6
_RRF_WEIGHTS = {DENSE_VECTOR: 1.0, SPARSE_VECTOR: 1.5}


class SearchFilters(BaseModel):
    """What hits must fulfil: all given conditions together, any one of the values within a condition.

    `tenant` is the default tenant if not said; only an explicit None searches all. `pages` (first and last, 1-based,
    inclusive) keeps chunks with a page in that range. `section` keeps chunks under a heading, of any level, that begins
    with this text; case counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str | None = DEFAULT_TENANT
    source: str | tuple[str, ...] = ()
    pages: tuple[int, int] | None = None
    language: str | tuple[str, ...] = ()
    labels: str | tuple[str, ...] = ()
    section: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _pages_in_order(self) -> SearchFilters:
        if self.pages is not None and not 1 <= self.pages[0] <= self.pages[1]:
            raise ValueError(f"pages are first and last page, counted from 1, not {self.pages}")
        return self


class Hit(BaseModel):
    """One found chunk with its citation. `score`: fused rank score (hybrid), cosine (dense) or BM25 (sparse).

    `dense_rank` and `sparse_rank` (from 1) say where each of the two searches alone put a hybrid hit; None where it was
    not among that search's candidates, or ranks were not asked for. `rerank_score`: the reranker's, on its own scale,
    where one ordered the hits.
    """

    score: float
    point_id: str
    source: str
    title: str
    section_path: list[str]
    pages: list[int]
    boxes: list[ChunkBox]
    labels: list[str]
    text: str
    chunk_index: int
    language: str
    tenant: str
    revision: str
    fingerprint: str
    ingested_at: datetime
    dense_rank: int | None = None
    sparse_rank: int | None = None
    rerank_score: float | None = None


def search(
    knowledge_base: KnowledgeBase,
    embedder: Embedder,
    sparse_encoder: SparseEncoder,
    query: str,
    *,
    k: int = 5,
    filters: SearchFilters | None = None,
    mode: SearchMode = "hybrid",
    language: str | None = None,
    with_ranks: bool = False,
    reranker: Reranker | None = None,
) -> list[Hit]:
    """The `k` best chunks for `query`, best first.

    Hybrid search fuses the candidates of both vectors by weighted reciprocal rank in the store (Qdrant 1.17).
    `language` (ISO 639-1) is the query's, if known. `with_ranks` adds each search's own rank, at the cost of running
    both once more. A `reranker` orders its `candidate_count` best hits anew; a passage is given to it under its
    headings, as it was embedded.
    Raises ValueError for an empty query or k < 1, CollectionMissing before the first load, CollectionMismatch where
    the collection holds vectors of other models.
    """
    from qdrant_client import models

    if not query.strip() or k < 1:
        raise ValueError("a search needs a question and k of at least 1")
    condition = qdrant_filter(filters or SearchFilters())
    knowledge_base.check_models(
        embedder if mode in ("hybrid", "dense") else None, sparse_encoder if mode in ("hybrid", "sparse") else None
    )
    vectors: dict[str, Any] = {}
    if mode in ("hybrid", "dense"):
        vectors[DENSE_VECTOR] = embedder.encode_query(query).tolist()
    if mode in ("hybrid", "sparse"):
        terms = sparse_encoder.encode_query(query, language)
        if terms.indices:
            vectors[SPARSE_VECTOR] = models.SparseVector(indices=list(terms.indices), values=list(terms.values))
        elif mode == "sparse":
            return []

    wanted = k if reranker is None else max(k, reranker.candidate_count)
    candidates = max(_MIN_CANDIDATES, _CANDIDATES_PER_RESULT * wanted)
    params = {DENSE_VECTOR: _dense_params(knowledge_base)}
    single = {
        name: models.QueryRequest(
            query=vector,
            using=name,
            filter=condition,
            limit=candidates if mode == "hybrid" else wanted,
            params=params.get(name),
        )
        for name, vector in vectors.items()
    }
    if len(single) == 1:
        (request,) = single.values()
        request.limit, request.with_payload = wanted, True
        requests = [request]
    else:
        prefetch = [
            models.Prefetch(query=each.query, using=name, filter=condition, limit=candidates, params=params.get(name))
            for name, each in single.items()
        ]
        fusion = models.RrfQuery(rrf=models.Rrf(k=_RRF_K, weights=[_RRF_WEIGHTS[name] for name in single]))
        fused = models.QueryRequest(prefetch=prefetch, query=fusion, limit=wanted, with_payload=True)
        requests = [fused, *single.values()] if with_ranks else [fused]

    with knowledge_base.collection() as alias:
        responses = knowledge_base.client.query_batch_points(alias, requests)
    ranks = [
        {str(point.id): rank for rank, point in enumerate(response.points, start=1)} for response in responses[1:]
    ] or [{}, {}]
    hits = [_hit(point, ranks) for point in responses[0].points]
    return hits if reranker is None else _reranked(reranker, query, hits)[:k]


def _reranked(reranker: Reranker, query: str, hits: list[Hit]) -> list[Hit]:
    passages = ["\n".join([hit.title, *hit.section_path, hit.text]) for hit in hits]
    scored = [
        hit.model_copy(update={"rerank_score": score})
        for hit, score in zip(hits, reranker.scores(query, passages), strict=True)
    ]
    return sorted(scored, key=lambda hit: hit.rerank_score or 0.0, reverse=True)


def _dense_params(knowledge_base: KnowledgeBase) -> Any:
    """How quantized vectors are searched; None where there are none, as in local mode."""
    from qdrant_client import models

    options = knowledge_base.options
    if options.quantization == "none" or options.path is not None:
        return None
    quantization = models.QuantizationSearchParams(rescore=True, oversampling=options.oversampling)
    return models.SearchParams(quantization=quantization)


def _hit(point: Any, ranks: list[dict[str, int]]) -> Hit:
    ident = str(point.id)
    return Hit(
        score=point.score,
        point_id=ident,
        text=point.payload["page_content"],
        dense_rank=ranks[0].get(ident),
        sparse_rank=ranks[1].get(ident),
        **point.payload["metadata"],
    )


def qdrant_filter(filters: SearchFilters) -> Any:
    """The filters as Qdrant takes them, for those who query it themselves; hides what is being loaded."""
    from qdrant_client import models

    must: list[Any] = [shown()]
    if filters.tenant is not None:
        must.append(matches("tenant", filters.tenant))
    for field, given in (("source", filters.source), ("language", filters.language), ("labels", filters.labels)):
        if given:
            must.append(matches(field, *([given] if isinstance(given, str) else given)))
    if filters.pages is not None:
        pages = models.Range(gte=filters.pages[0], lte=filters.pages[1])
        must.append(models.FieldCondition(key="metadata.pages", range=pages))
    if filters.section is not None:
        prefix = models.MatchPrefix(prefix=filters.section)
        must.append(models.FieldCondition(key="metadata.section_path", match=prefix))
    return models.Filter(must=must)
