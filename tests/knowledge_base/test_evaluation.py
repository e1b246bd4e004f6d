"""Measures of search with values worked out by hand, and a real search measured."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, set_seed

from knowledge_base.embedding import Embedder, _packaged_model_path
from knowledge_base.errors import ModelNotFound
from knowledge_base.evaluation import (
    QuestionOutcome,
    Run,
    ask_all,
    difference,
    mean_with_interval,
    metrics_of,
)
from knowledge_base.questions import Question
from knowledge_base.reranking import Reranker
from knowledge_base.search import search
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase
from tests.knowledge_base.builders import Loader, make_chunks, make_revision


def test_one_page_found_third() -> None:
    assert metrics_of([[1], [2], [7], [7]], [7]) == {
        "recall@1": 0.0,
        "recall@5": 1.0,
        "recall@10": 1.0,
        "mrr": pytest.approx(1 / 3),
        "ndcg@10": pytest.approx(1 / 2),
    }


def test_of_two_pages_each_counts_once_and_where_it_comes_first() -> None:
    found = [[4], [4], [], [], [], [8, 9]]
    assert metrics_of(found, [4, 8]) == {
        "recall@1": 0.5,
        "recall@5": 0.5,
        "recall@10": 1.0,
        "mrr": 1.0,
        "ndcg@10": pytest.approx((1 + 1 / math.log2(7)) / (1 + 1 / math.log2(3))),
    }


def test_nothing_found_and_beyond_the_depth() -> None:
    nothing = {"recall@1": 0.0, "recall@5": 0.0, "recall@10": 0.0, "mrr": 0.0, "ndcg@10": 0.0}
    assert metrics_of([], [1]) == nothing
    assert metrics_of([[2]] * 10 + [[1]], [1]) == nothing


def test_an_interval_holds_its_mean_and_narrows_with_more_questions() -> None:
    few, many = mean_with_interval([0, 1] * 10), mean_with_interval([0, 1] * 1000)
    assert few.mean == many.mean == 0.5
    assert 0.25 <= few.low < many.low < 0.5 < many.high < few.high <= 0.75
    assert mean_with_interval([0.25] * 7).model_dump() == {"mean": 0.25, "low": 0.25, "high": 0.25}
    with pytest.raises(ValueError, match="no questions"):
        mean_with_interval([])


def test_runs_are_compared_question_by_question() -> None:
    def run(name: str, values: list[float], first: str = "q0") -> Run:
        outcomes = [
            QuestionOutcome(
                question=first if number == 0 else f"q{number}",
                source="s",
                pages=(1,),
                rank=None,
                metrics={"mrr": value},
            )
            for number, value in enumerate(values)
        ]
        return Run(name=name, outcomes=outcomes)

    # each question gains the same, so the difference is sure though the values scatter
    assert difference(run("a", [0.1, 0.6, 1.0]), run("b", [0.0, 0.5, 0.9]), "mrr").low == pytest.approx(0.1)
    with pytest.raises(ValueError, match="not asked the same questions"):
        difference(run("a", [0.1]), run("b", [0.1], first="other"), "mrr")


def test_a_real_search_is_measured(
    knowledge_base: KnowledgeBase, load: Loader, embedder: Embedder, sparse_encoder: SparseEncoder
) -> None:
    load(
        knowledge_base, make_revision("s3://m/pump.pdf"), make_chunks("Drain the oil while it is warm.", "Part E-4071")
    )
    load(knowledge_base, make_revision("s3://m/saw.pdf"), make_chunks("Wear gloves near the blade."))
    questions = [
        Question(question="How is the oil drained?", source="s3://m/pump.pdf", pages=(1,)),
        Question(question="E-4071", source="s3://m/pump.pdf", pages=(2,)),
        Question(question="gloves", source="s3://m/pump.pdf", pages=(1,)),
    ]

    run = ask_all(
        "sparse", lambda text: search(knowledge_base, embedder, sparse_encoder, text, mode="sparse"), questions
    )

    assert [outcome.rank for outcome in run.outcomes] == [1, 1, None]
    assert run.outcomes[2].first_hit == "s3://m/saw.pdf page 1: 1 Start"
    assert run.scores["recall@5"].mean == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small cross-encoder with random weights, in the format of published ones."""
    folder = tmp_path_factory.mktemp("cross-encoder")
    tokenizer = AutoTokenizer.from_pretrained(_packaged_model_path())
    set_seed(3)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=1,
        initializer_range=0.5,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_reranker_orders_the_hits_by_its_own_scores(
    knowledge_base: KnowledgeBase,
    load: Loader,
    embedder: Embedder,
    sparse_encoder: SparseEncoder,
    cross_encoder: Path,
) -> None:
    texts = [f"Drain the oil of pump {number} while it is warm." for number in range(8)]
    load(knowledge_base, make_revision(), make_chunks(*texts))
    reranker = Reranker(cross_encoder, candidate_count=6, device="cpu")

    plain = search(knowledge_base, embedder, sparse_encoder, "drain the oil", k=6)
    hits = search(knowledge_base, embedder, sparse_encoder, "drain the oil", k=3, reranker=reranker)

    scores = reranker.scores("drain the oil", [f"Pump\n1 Start\n{hit.text}" for hit in plain])
    expected = sorted(zip(scores, plain, strict=True), key=lambda pair: pair[0], reverse=True)[:3]
    assert [hit.point_id for hit in hits] == [hit.point_id for _, hit in expected]
    assert [hit.rerank_score for hit in hits] == pytest.approx([score for score, _ in expected], abs=1e-4)
    assert [hit.point_id for hit in hits] != [hit.point_id for hit in plain[:3]]
    assert plain[0].rerank_score is None
    assert reranker.scores("anything", []) == []


def test_a_reranker_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFound, match="cannot load the reranking model"):
        Reranker(tmp_path / "empty").scores("q", ["p"])
    with pytest.raises(ValueError, match="at least one candidate"):
        Reranker("m", candidate_count=0)
