"""Measure the knowledge base's search on a question set: every way of searching beside the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import BaseModel

from ingestion.chunker_evaluation import STRUCTURE, WINDOWS, chunker_runs
from ingestion.errors import ObjectMissing, QuestionsWithoutSources
from ingestion.job import Job, SourceRef
from ingestion.stored_results import stored_document, stored_report
from ingestion.workspace import Workspace
from knowledge_base.evaluation import DEPTH, METRICS, Run, Score, ask_all, difference

if TYPE_CHECKING:
    from knowledge_base.questions import Question
    from knowledge_base.search import Hit, SearchMode
    from knowledge_base.store import KnowledgeBase

RERANKED = "reranked"
COMPARED_METRIC = "recall@5"


class Comparison(BaseModel):
    """How much better one run is than another on the same questions."""

    better: str
    worse: str
    metric: str
    difference: Score


class EvaluationReport(BaseModel):
    """All runs. `unknown_sources`: sources of the questions that have no point in the knowledge base; their questions
    count as not answered."""

    made_at: datetime
    collection: str
    question_count: int
    source_count: int
    unknown_sources: list[str]
    runs: list[Run]
    comparisons: list[Comparison]

    def lines(self) -> list[str]:
        """The report for people."""
        head = f"{self.question_count} questions about {self.source_count} sources, means with 95 % intervals"
        lines = [head, "", " " * 10 + "".join(f"{metric:<24}" for metric in METRICS).rstrip()]
        for run in self.runs:
            scores = run.scores
            lines.append(f"{run.name:<10}" + "".join(f"{scores[metric]!s:<24}" for metric in METRICS).rstrip())
        lines.append("")
        lines += [f"{each.metric}, {each.better} − {each.worse}: {each.difference}" for each in self.comparisons]
        if self.unknown_sources:
            lines.append(f"not in the knowledge base: {', '.join(self.unknown_sources)}")
        return lines

    def scores(self) -> dict[str, dict[str, Score]]:
        """Run name → metric → score."""
        return {run.name: run.scores for run in self.runs}


def evaluate(workspace: Workspace, questions: Sequence[Question], *, by_chunker: bool = False) -> EvaluationReport:
    """Ask all questions by dense, sparse and hybrid search, and reranked where the settings name a reranker;
    `by_chunker` also in two ways of cutting (see `chunker_runs`).

    Raises QuestionsWithoutSources when no question is about a source that the knowledge base holds.
    """
    with workspace.open_knowledge_base() as knowledge_base:
        report = evaluate_collection(workspace, knowledge_base, questions)
    if not by_chunker:
        return report
    wanted = {question.source for question in questions}
    jobs = [manifest.published_job("evaluate") for manifest in workspace.manifests.all() if manifest.uri in wanted]
    cuttings = chunker_runs(workspace, [job for job in jobs if job is not None], questions)
    comparisons = [*report.comparisons, _comparison({run.name: run for run in cuttings}, STRUCTURE, WINDOWS)]
    return report.model_copy(update={"runs": [*report.runs, *cuttings], "comparisons": comparisons})


def evaluate_collection(
    workspace: Workspace, knowledge_base: KnowledgeBase, questions: Sequence[Question]
) -> EvaluationReport:
    """The same on a knowledge base that is open, with the workspace's models."""
    sources = {question.source for question in questions}
    tenant = workspace.settings.tenant
    unknown = sorted(source for source in sources if not knowledge_base.count(source, tenant=tenant))
    if len(unknown) == len(sources):
        raise QuestionsWithoutSources(unknown)
    modes: tuple[SearchMode, ...] = ("dense", "sparse", "hybrid")
    runs = [ask_all(mode, _Asker(workspace, knowledge_base, mode), questions) for mode in modes]
    if workspace.reranker is not None:
        runs.append(ask_all(RERANKED, _Asker(workspace, knowledge_base, "hybrid", is_reranked=True), questions))
    by_name = {run.name: run for run in runs}
    pairs = [("hybrid", "dense"), ("hybrid", "sparse"), (RERANKED, "hybrid")]
    return EvaluationReport(
        made_at=datetime.now(UTC),
        collection=knowledge_base.options.collection,
        question_count=len(questions),
        source_count=len(sources),
        unknown_sources=unknown,
        runs=runs,
        comparisons=[_comparison(by_name, better, worse) for better, worse in pairs if better in by_name],
    )


def _comparison(runs: Mapping[str, Run], better: str, worse: str) -> Comparison:
    return Comparison(
        better=better,
        worse=worse,
        metric=COMPARED_METRIC,
        difference=difference(runs[better], runs[worse], COMPARED_METRIC),
    )


def make_questions(workspace: Workspace, sources: Iterable[SourceRef] = ()) -> list[Question]:
    """Questions from the contents and index pages of published manuals; of all where none is named.

    A manual without either gives none.
    """
    wanted = {source.uri for source in sources}
    questions: list[Question] = []
    for manifest in sorted(workspace.manifests.all(), key=lambda each: each.uri):
        job = manifest.published_job("questions")
        if job is not None and (not wanted or manifest.uri in wanted):
            questions.extend(_questions_of(workspace, job))
    return questions


class _Asker:
    def __init__(
        self, workspace: Workspace, knowledge_base: KnowledgeBase, mode: SearchMode, *, is_reranked: bool = False
    ) -> None:
        from knowledge_base.search import SearchFilters

        self._models = workspace.embedder, workspace.sparse_encoder
        self._knowledge_base, self._mode = knowledge_base, mode
        self._filters = SearchFilters(tenant=workspace.settings.tenant)
        self._reranker = workspace.reranker if is_reranked else None

    def __call__(self, question: str) -> list[Hit]:
        from knowledge_base.search import search

        return search(
            self._knowledge_base,
            *self._models,
            question,
            k=DEPTH,
            filters=self._filters,
            mode=self._mode,
            reranker=self._reranker,
        )


def _questions_of(workspace: Workspace, job: Job) -> list[Question]:
    from knowledge_base.questions import questions_of

    try:
        document, report = stored_document(workspace, job), stored_report(workspace, job)
    except ObjectMissing:
        return []
    return questions_of(document, report.page_labels, job.source.uri)
