"""The evaluation as one HTML page that stands alone: tables, plots as SVG, and the questions that found nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path

from ingestion.evaluation import EvaluationReport
from knowledge_base.evaluation import DEPTH, METRICS, Run, Score

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733 }
table { border-collapse: collapse; margin: 1rem 0; width: 100% } th, td { padding: .3rem .6rem; text-align: left;
border-bottom: 1px solid #d8dee4; vertical-align: top } td.number { font-variant-numeric: tabular-nums }
.interval { color: #66727e; font-size: 85% }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: #1c2733 }
"""
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")
_PLOT_LEFT, _PLOT_WIDTH, _BAR_HEIGHT, _GROUP_GAP = 90, 640, 14, 14
_MOST_MISSED = 200


def write_page(report: EvaluationReport, path: Path) -> None:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(_page(report)), encoding="utf-8")


def _page(report: EvaluationReport) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><meta charset="utf-8"><title>Search evaluation</title>'
    yield f"<style>{_STYLE}</style><h1>Search evaluation</h1>"
    yield (
        f"<p>{report.question_count} questions about {report.source_count} sources, collection "
        f"{escape(report.collection)}, {report.made_at:%Y-%m-%d %H:%M} UTC. Means with 95&nbsp;% intervals.</p>"
    )
    if report.unknown_sources:
        yield f"<p><b>Not in the knowledge base:</b> {escape(', '.join(report.unknown_sources))}</p>"
    yield from _scores_table(report)
    yield _bars(report.runs)
    yield "<h2>Differences on the same questions</h2><table><tr><th>comparison<th>metric<th>difference</tr>"
    for each in report.comparisons:
        name = f"{escape(each.better)} − {escape(each.worse)}"
        yield f"<tr><td>{name}<td>{escape(each.metric)}<td class=number>{_score(each.difference)}</tr>"
    yield "</table><h2>Where the first answer stands</h2>"
    yield from _ranks_table(report.runs)
    yield from _missed(next((run for run in report.runs if run.name == "hybrid"), report.runs[-1]))
    yield "</html>"


def _scores_table(report: EvaluationReport) -> Iterator[str]:
    yield f"<table><tr><th>search{''.join(f'<th>{metric}' for metric in METRICS)}</tr>"
    for run in report.runs:
        scores = run.scores
        cells = "".join(f"<td class=number>{_score(scores[metric])}" for metric in METRICS)
        yield f"<tr><td>{escape(run.name)}{cells}</tr>"
    yield "</table>"


def _score(score: Score) -> str:
    return f'{score.mean:.3f} <span class="interval">[{score.low:.3f}, {score.high:.3f}]</span>'


def _bars(runs: list[Run]) -> str:
    """A group of bars a metric, a bar a run, with its interval as a line."""
    group_height = len(runs) * _BAR_HEIGHT + _GROUP_GAP
    height = group_height * len(METRICS) + 30
    parts = [f'<svg viewBox="0 0 {_PLOT_LEFT + _PLOT_WIDTH + 20} {height}" role="img" aria-label="Scores by search">']
    for tenth in range(0, 11, 2):
        x = _PLOT_LEFT + _PLOT_WIDTH * tenth / 10
        parts.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{height - 20}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{x}" y="{height - 5}" text-anchor="middle">{tenth / 10:.1f}</text>')
    scores = [run.scores for run in runs]
    for row, metric in enumerate(METRICS):
        top = row * group_height + _GROUP_GAP / 2
        middle = top + len(runs) * _BAR_HEIGHT / 2 + 4
        parts.append(f'<text x="{_PLOT_LEFT - 8}" y="{middle}" text-anchor="end">{metric}</text>')
        for number, of_run in enumerate(scores):
            y, score = top + number * _BAR_HEIGHT, of_run[metric]
            low, high, mean = (_PLOT_WIDTH * value for value in (score.low, score.high, score.mean))
            colour = _COLOURS[number % len(_COLOURS)]
            parts.append(
                f'<rect x="{_PLOT_LEFT}" y="{y}" width="{mean:.1f}" height="{_BAR_HEIGHT - 2}" fill="{colour}">'
                f"<title>{escape(runs[number].name)} {score}</title></rect>"
            )
            x_low, x_high, line = _PLOT_LEFT + low, _PLOT_LEFT + high, y + _BAR_HEIGHT / 2 - 1
            parts.append(f'<line x1="{x_low:.1f}" x2="{x_high:.1f}" y1="{line}" y2="{line}" stroke="#1c2733"/>')
    legend = " ".join(
        f'<span style="color:{_COLOURS[number % len(_COLOURS)]}">■</span> {escape(run.name)}'
        for number, run in enumerate(runs)
    )
    return "".join(parts) + f"</svg><p>{legend}</p>"


def _ranks_table(runs: list[Run]) -> Iterator[str]:
    yield f"<table><tr><th>rank{''.join(f'<th>{escape(run.name)}' for run in runs)}</tr>"
    counts = [Counter(outcome.rank for outcome in run.outcomes) for run in runs]
    for rank in (*range(1, DEPTH + 1), None):
        name = f"not in the first {DEPTH}" if rank is None else str(rank)
        yield f"<tr><td>{name}{''.join(f'<td class=number>{count[rank]}' for count in counts)}</tr>"
    yield "</table>"


def _missed(run: Run) -> Iterator[str]:
    missed = [outcome for outcome in run.outcomes if outcome.rank is None]
    yield f"<h2>Not found by {escape(run.name)}: {len(missed)}</h2>"
    if not missed:
        return
    yield "<table><tr><th>question<th>should be<th>first hit instead</tr>"
    for outcome in missed[:_MOST_MISSED]:
        pages = ", ".join(map(str, outcome.pages))
        yield (
            f"<tr><td>{escape(outcome.question)}<td>{escape(outcome.source)} page {pages}"
            f"<td>{escape(outcome.first_hit or 'nothing')}</tr>"
        )
    yield "</table>"
    if len(missed) > _MOST_MISSED:
        yield f"<p>and {len(missed) - _MOST_MISSED} more</p>"
