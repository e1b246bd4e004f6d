"""Commands about the collections behind the alias: another embedding model, what is kept, snapshots."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ingestion.cli_output import AsJson, err, errors_to_exit_codes, out, print_json
from ingestion.report import EXIT_PARTIAL
from ingestion.settings import Settings
from ingestion.workspace import Workspace


def reembed(
    model: Annotated[str, typer.Argument(help="sentence-transformers folder or hub name; all-MiniLM-L6-v2: packaged.")],
    questions: Annotated[
        Path | None, typer.Option(help="Question set; default: made from contents and index pages.")
    ] = None,
    most_loss: Annotated[float, typer.Option(min=0.0, max=1.0, help="Recall@5 that search may lose.")] = 0.02,
    check: Annotated[bool, typer.Option(help="Compare search before the switch.")] = True,
    switch: Annotated[bool, typer.Option(help="Point the alias to the new collection in the end.")] = True,
    max_chunk_tokens: Annotated[int | None, typer.Option(min=32, help="Default: the new model's limit.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change the embedding model: fill a collection beside the live one, compare, switch. No page is read again."""
    from ingestion.reembedding import question_set, settings_for
    from ingestion.reembedding import reembed as reembed_all

    run_id = f"reembed-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    settings = Settings.load()
    with (
        errors_to_exit_codes(),
        Workspace(settings) as workspace,
        Workspace(settings_for(settings, model, max_chunk_tokens)) as new,
    ):
        asked = question_set(workspace, questions) if check else []
        if check and not asked:
            err.print("no manual has contents or index pages to make questions from: search is not compared")
        report = reembed_all(
            workspace,
            new,
            run_id=run_id,
            questions=asked,
            most_loss=most_loss,
            is_switching=switch,
            on_source=lambda uri, number, count: err.print(f"{number}/{count} {uri}"),
        )
    if as_json:
        print_json(report)
    else:
        out.print("\n".join(report.lines()))
    if report.failed:
        raise typer.Exit(EXIT_PARTIAL)


def collections(
    drop: Annotated[str | None, typer.Option(help="Delete this collection; the live one is refused.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the collections behind the alias: which is live, which are kept."""
    from knowledge_base.generations import drop_collection, list_collections

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace, workspace.open_knowledge_base() as index:
        if drop is not None:
            drop_collection(index, drop)
        listed = list_collections(index)
    if as_json:
        print_json([each.model_dump(mode="json") for each in listed])
    else:
        for each in listed:
            out.print(f"{'live' if each.is_live else 'kept'}  {each.name}  {each.point_count} points  {each.model}")


def snapshot(
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder for a copy of local files.")] = Path(
        "snapshots"
    ),
    list_only: Annotated[bool, typer.Option("--list", help="List the snapshots that the server keeps.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a snapshot of the live collection: on the Qdrant server, or as an archive of the local files."""
    from knowledge_base.snapshots import list_snapshots, take_snapshot

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace, workspace.open_knowledge_base() as index:
        found = list_snapshots(index) if list_only else [take_snapshot(index, folder)]
    if as_json:
        print_json(found)
    else:
        out.print("\n".join(found))
