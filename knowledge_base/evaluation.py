"""How good is search? Recall, reciprocal rank and nDCG over questions whose pages are known, with intervals.

A hit answers a question when it is of the question's source and holds one of its pages. Each page counts once, where it
is found first: recall@k is the share of a question's pages among the first k hits; reciprocal rank is 1 / rank of the
first answer; nDCG@10 (Järvelin and Kekäläinen 2002, binary gains) also rewards the pages after the first.

Intervals are percentile bootstraps over the questions (95 %, 2,000 resamples, fixed seed); two ways of searching are
compared on the same questions, question by question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

if TYPE_CHECKING:
    from knowledge_base.questions import Question
    from knowledge_base.search import Hit

DEPTH = 10
RECALL_DEPTHS = (1, 5, 10)
METRICS = (*(f"recall@{depth}" for depth in RECALL_DEPTHS), "mrr", "ndcg@10")

_RESAMPLES = 2000
_SEED = 0
_INTERVAL_PERCENT = (2.5, 97.5)

SearchQuestion = Callable[[str], "list[Hit]"]
"""The best `DEPTH` hits for a question's words."""


class Score(BaseModel):
    """A mean over questions, and the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


class QuestionOutcome(BaseModel):
    """What one question came to. `rank`: of the first hit that answers, None beyond `DEPTH`; `first_hit`: source, page
    and section of the best hit, for people."""

    question: str
    source: str
    pages: tuple[int, ...]
    rank: int | None
    metrics: dict[str, float]
    first_hit: str = ""


class Run(BaseModel):
    """All questions asked in one way."""

    name: str
    outcomes: list[QuestionOutcome]

    @property
    def scores(self) -> dict[str, Score]:
        """Every metric over all questions."""
        return {metric: mean_with_interval(self.values(metric)) for metric in METRICS}

    def values(self, metric: str) -> list[float]:
        """One metric, question by question."""
        return [outcome.metrics[metric] for outcome in self.outcomes]


def ask_all(name: str, search: SearchQuestion, questions: Iterable[Question]) -> Run:
    """Ask every question."""
    return Run(name=name, outcomes=[_outcome(question, search(question.question)) for question in questions])


def difference(better: Run, worse: Run, metric: str) -> Score:
    """How much larger the first run's mean is, with the interval of the paired differences.

    Raises ValueError unless both asked the same questions.
    """
    if [each.question for each in better.outcomes] != [each.question for each in worse.outcomes]:
        raise ValueError(f"{better.name} and {worse.name} were not asked the same questions")
    return mean_with_interval(np.subtract(better.values(metric), worse.values(metric)))


def mean_with_interval(values: Sequence[float] | NDArray[np.float64]) -> Score:
    """The mean and its bootstrap interval. Raises ValueError for no values."""
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        raise ValueError("no questions, no score")
    picks = np.random.default_rng(_SEED).integers(array.size, size=(_RESAMPLES, array.size))
    low, high = np.percentile(array[picks].mean(axis=1), _INTERVAL_PERCENT)
    return Score(mean=float(array.mean()), low=float(low), high=float(high))


def metrics_of(found: Sequence[Iterable[int]], pages: Sequence[int]) -> dict[str, float]:
    """Metrics of one question. `found`: pages of each hit, best first, empty for a hit of another source."""
    wanted = set(pages)
    gains, recalls = [], []
    seen: set[int] = set()
    for hit_pages in list(found)[:DEPTH]:
        new = wanted & set(hit_pages) - seen
        seen |= new
        gains.append(1.0 if new else 0.0)
        recalls.append(len(seen) / len(wanted))
    recalls += [len(seen) / len(wanted)] * (DEPTH - len(recalls))
    first = next((rank for rank, gain in enumerate(gains, start=1) if gain), None)
    gained = sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(wanted), DEPTH) + 1))
    return {
        **{f"recall@{depth}": recalls[depth - 1] for depth in RECALL_DEPTHS},
        "mrr": 1 / first if first else 0.0,
        "ndcg@10": gained / ideal,
    }


def _outcome(question: Question, hits: list[Hit]) -> QuestionOutcome:
    found = [hit.pages if hit.source == question.source else [] for hit in hits[:DEPTH]]
    wanted = set(question.pages)
    first = hits[0] if hits else None
    return QuestionOutcome(
        question=question.question,
        source=question.source,
        pages=question.pages,
        rank=next((rank for rank, pages in enumerate(found, start=1) if wanted & set(pages)), None),
        metrics=metrics_of(found, question.pages),
        first_hit=f"{first.source} page {first.pages[0]}: {' › '.join(first.section_path)}" if first else "",
    )
