"""Commands that measure: question sets and the evaluation of search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ingestion.cli_output import AsJson, err, errors_to_exit_codes, out, print_json
from ingestion.report import EXIT_REFUSED
from ingestion.settings import Settings
from ingestion.workspace import Workspace


def questions(
    sources: Annotated[list[str] | None, typer.Argument(help="s3://bucket/key or keys; none: all published.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Question set to write (JSON Lines).")] = Path(
        "questions.jsonl"
    ),
) -> None:
    """Make a question set from the contents and index pages of published manuals."""
    from ingestion.evaluation import make_questions
    from ingestion.job import SourceRef
    from ingestion.status import source_address
    from knowledge_base.questions import write_questions

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        addresses = [source_address(workspace, source) for source in sources or []]
        made = make_questions(workspace, [SourceRef(bucket=bucket, key=key) for bucket, key in addresses])
    if not made:
        err.print("no published manual named here has contents or index pages that could be read", style="red")
        raise typer.Exit(EXIT_REFUSED)
    write_questions(made, output)
    out.print(f"{len(made)} questions about {len({each.source for each in made})} sources: {output}")


def evaluate(
    question_set: Annotated[Path, typer.Argument(help="JSON Lines: question, source, page or pages.")],
    html: Annotated[Path | None, typer.Option(help="Also write the report as an HTML page.")] = None,
    chunkers: Annotated[
        bool, typer.Option(help="Also compare chunks along the structure with fixed windows of their mean size.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure search on a question set: dense, sparse, hybrid, and reranked where a reranker is set."""
    from ingestion.evaluation import evaluate as evaluate_questions
    from ingestion.evaluation_page import write_page
    from knowledge_base.questions import read_questions

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        report = evaluate_questions(workspace, read_questions(question_set), by_chunker=chunkers)
    if html is not None:
        write_page(report, html)
    if as_json:
        print_json({**report.model_dump(mode="json"), "scores": report.scores()})
    else:
        out.print("\n".join(report.lines()))
