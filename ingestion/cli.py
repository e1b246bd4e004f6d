"""The command line: `ocr2kb parse | ingest | search | status | doctor | plan`.

Exit codes: 0 ok, 1 a fault of ours, 2 usage, 3 done in part, 4 input refused, 5 service unavailable.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from ingestion import cli_index, cli_quality, cli_structure
from ingestion.cli_output import (
    EXIT_FAULT,
    EXIT_UNAVAILABLE,
    AsJson,
    PageProgress,
    err,
    errors_to_exit_codes,
    out,
    print_json,
    set_up_logging,
)
from ingestion.job import JobOptions
from ingestion.report import EXIT_PARTIAL, EXIT_REFUSED
from ingestion.settings import EngineName, OcrMode, Settings
from ingestion.workspace import Workspace
from knowledge_base.search import SearchMode

app = typer.Typer(
    name="ocr2kb",
    help="Scanned manuals in, cited answers out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Engine = Annotated[EngineName | None, typer.Option(help="What reads scanned pages.")]
Ocr = Annotated[OcrMode | None, typer.Option(help="auto: use sound PDF text layers; always: recognise every page.")]
Model = Annotated[
    str | None, typer.Option("--model", help="Folder or hub id of an Unlimited-OCR checkpoint; asks for engine ocr2.")
]


@app.callback()
def common(verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what is done.")] = False) -> None:
    set_up_logging(verbose)


@app.command()
def parse(
    files: Annotated[list[Path], typer.Argument(help="PDF, TIFF, PNG or JPEG files.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for one subfolder a file.")] = Path("parsed"),
    engine: Engine = None,
    model: Model = None,
    ocr: Ocr = None,
    view: Annotated[bool, typer.Option(help="Also write view.html: pages, boxes and the recovered tree.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read files and write document.json, document.md and report.json for each."""
    from ingestion.parsing import output_folders, parse_file
    from ocr2_core.errors import SourceRefused

    options = JobOptions(engine=engine or ("ocr2" if model else None), ocr=ocr)
    outcomes: list[dict[str, object]] = []
    with errors_to_exit_codes(), Workspace(Settings.load(model_path=model)) as workspace, PageProgress() as progress:
        for path, folder in zip(files, output_folders(files, output), strict=True):
            progress.start(path.name)
            try:
                parsed = parse_file(workspace, path, options, progress.on_page)
                parsed.write(folder)
                if view:
                    parsed.write_view(workspace, folder)
            except SourceRefused as error:
                err.print(f"{path}: [{error.code}] {error}", style="red")
                outcomes.append({"file": str(path), "status": "refused", "code": error.code, "cause": str(error)})
                continue
            except OSError as error:
                err.print(f"{path}: {error.strerror or error}", style="red")
                outcomes.append({"file": str(path), "status": "refused", "code": "unreadable", "cause": str(error)})
                continue
            counts = parsed.counts
            status = "partial" if counts.failed else "ok"
            outcomes.append({"file": str(path), "status": status, "output": str(folder), "counts": counts.model_dump()})
    _print_parsed(outcomes, as_json)
    refused = sum(outcome["status"] == "refused" for outcome in outcomes)
    if refused == len(outcomes):
        raise typer.Exit(EXIT_REFUSED)
    if refused or any(outcome["status"] == "partial" for outcome in outcomes):
        raise typer.Exit(EXIT_PARTIAL)


@app.command()
def ingest(
    addresses: Annotated[list[str], typer.Argument(help="Files, folders, or s3://bucket/prefix.")],
    engine: Engine = None,
    ocr: Ocr = None,
    force: Annotated[bool, typer.Option(help="Repeat every stage.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run all stages without Airflow; local files are uploaded into the source bucket first."""
    from ingestion.local_sources import find_sources
    from ingestion.pipeline import ingest as ingest_sources
    from ingestion.report import summarise

    options = JobOptions(force=force, engine=engine, ocr=ocr)
    run_id = _run_id()
    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        workspace.ensure_buckets()
        sources = find_sources(workspace, addresses)
        with PageProgress() as progress:
            ingest_sources(
                workspace,
                sources,
                run_id=run_id,
                options=options,
                on_stage=progress.on_stage,
                on_page=progress.on_page,
            )
        summary = summarise(workspace.manifests, sources, run_id)
    if as_json:
        print_json(summary)
    else:
        out.print("\n".join(summary.lines()))
    raise typer.Exit(summary.exit_code)


@app.command()
def search(
    question: Annotated[str, typer.Argument(help="A question or words to look for.")],
    k: Annotated[int, typer.Option("-k", min=1, max=100, help="How many answers.")] = 5,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", help="NAME=VALUE: source, section, language, label, page.")
    ] = None,
    mode: Annotated[SearchMode, typer.Option(help="How candidates are found.")] = "hybrid",
    expand: Annotated[int, typer.Option(min=0, max=20, help="Passages to show before and after each answer.")] = 0,
    show: Annotated[
        Path | None, typer.Option(help="Folder for a picture of each answer's pages, its boxes drawn.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer from the knowledge base, each answer with manual, section, page and box."""
    from ingestion.answers import answer_lines, context_lines, parse_filters
    from ingestion.pictures import draw_hits
    from knowledge_base.passages import neighbours
    from knowledge_base.search import search as search_knowledge_base

    if not question.strip():
        raise typer.BadParameter("ask something", param_hint="QUESTION")
    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        try:
            search_filters = parse_filters(filters or [], workspace.settings.tenant)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--filter") from error
        # models load before the index opens: the local index is locked while it is open
        embedder, sparse_encoder = workspace.embedder, workspace.sparse_encoder
        with workspace.open_knowledge_base() as knowledge_base:
            hits = search_knowledge_base(
                knowledge_base,
                embedder,
                sparse_encoder,
                question,
                k=k,
                filters=search_filters,
                mode=mode,
                reranker=workspace.reranker,
            )
            contexts = [neighbours(knowledge_base, hit, expand) if expand else [] for hit in hits]
        pictures = draw_hits(workspace, hits, show) if show is not None else []
    for picture in pictures:
        if picture.problem:
            err.print(f"answer {picture.rank}: {picture.problem}", style="yellow")
    if as_json:
        answers = [hit.model_dump(mode="json") for hit in hits]
        for answer, context in zip(answers, contexts, strict=True):
            if expand:
                answer["context"] = [passage.model_dump(mode="json") for passage in context]
        for picture in pictures:
            answers[picture.rank - 1].setdefault("pictures", []).extend(map(str, picture.files))
        print_json(answers)
    elif hits:
        files_of = {picture.rank: [f"   picture: {file}" for file in picture.files] for picture in pictures}
        answered = [
            [*answer_lines(rank, hit), *files_of.get(rank, []), *context_lines(context)]
            for rank, (hit, context) in enumerate(zip(hits, contexts, strict=True), start=1)
        ]
        out.print("\n\n".join("\n".join(lines) for lines in answered))
    else:
        err.print("nothing found")


@app.command()
def read(
    source: Annotated[str, typer.Argument(help="s3://bucket/key, or a key of the source bucket.")],
    section: Annotated[str | None, typer.Argument(help="A heading, or its number; none: the outline.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read a section of a published source as it stands in the knowledge base, or list its sections."""
    from ingestion.answers import outline_lines, passage_lines
    from ingestion.status import source_address
    from knowledge_base.passages import outline, read_section

    if section is not None and not section.strip():
        raise typer.BadParameter("name a heading, or its number", param_hint="SECTION")
    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        bucket, key = source_address(workspace, source)
        uri, tenant = f"s3://{bucket}/{key}", workspace.settings.tenant
        with workspace.open_knowledge_base() as knowledge_base:
            entries = [] if section else outline(knowledge_base, uri, tenant=tenant)
            passages = read_section(knowledge_base, uri, section, tenant=tenant) if section else []
    if not entries and not passages:
        err.print(f"{uri} has no section {section!r}" if section else f"nothing of {uri} is published")
        raise typer.Exit(EXIT_REFUSED)
    if as_json:
        print_json([item.model_dump(mode="json") for item in (*entries, *passages)])
    else:
        out.print("\n".join(outline_lines(entries) if entries else passage_lines(passages)))


@app.command()
def mcp() -> None:
    """Serve search and sections to language models over MCP, on stdin and stdout."""
    from ingestion.mcp_server import make_server

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        make_server(workspace).run("stdio")


@app.command()
def status(
    source: Annotated[str | None, typer.Argument(help="s3://bucket/key or a key of the source bucket.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is published and how the last attempts ended; with SOURCE its page ledger too."""
    from ingestion.status import all_lines, source_lines, source_status

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        if source is None:
            manifests = list(workspace.manifests.all())
            if as_json:
                print_json([manifest.model_dump(mode="json") for manifest in manifests])
            else:
                out.print("\n".join(all_lines(manifests)))
            return
        found = source_status(workspace, source)
        if as_json:
            print_json(found)
        else:
            out.print("\n".join(source_lines(found)))


@app.command()
def delete(
    sources: Annotated[list[str], typer.Argument(help="s3://bucket/key, or keys of the source bucket.")],
    with_object: Annotated[bool, typer.Option(help="Delete the objects too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take sources out of the knowledge base; a tombstone stays in their manifests. One refusal stops no other."""
    from ingestion.deletion import delete_source
    from ingestion.errors import ObjectKeyRefused, ObjectMissing, SourceStillThere
    from ingestion.status import source_address

    run_id = _run_id()
    outcomes: list[dict[str, object]] = []
    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        for name in sources:
            try:
                bucket, key = source_address(workspace, name)
                point_count = delete_source(workspace, bucket, key, run_id=run_id, with_object=with_object)
            except (SourceStillThere, ObjectMissing, ObjectKeyRefused) as error:
                err.print(f"error: {error}", style="red")
                outcomes.append({"source": name, "status": "refused", "cause": str(error)})
                continue
            source = f"s3://{bucket}/{key}"
            outcomes.append({"source": source, "status": "deleted", "point_count": point_count})
            if not as_json:
                out.print(f"deleted {source}: {point_count} points")
    if as_json:
        print_json(outcomes)
    refused = sum(outcome["status"] == "refused" for outcome in outcomes)
    if refused:
        raise typer.Exit(EXIT_REFUSED if refused == len(outcomes) else EXIT_PARTIAL)


@app.command()
def audit(
    fix: Annotated[bool, typer.Option(help="Make good what needs no reading.")] = False,
    force: Annotated[bool, typer.Option(help="Fix even if many sources would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare objects, manifests and points, and say what differs."""
    from ingestion.audit import audit as run_audit

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        report = run_audit(workspace, run_id=_run_id(), fix=fix, force=force)
    if as_json:
        print_json(report)
    else:
        out.print("\n".join(report.lines()))
    if not report.is_clean:
        raise typer.Exit(EXIT_PARTIAL)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check versions, models and services."""
    from ingestion.doctor import run_checks

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        checks = run_checks(workspace)
    if as_json:
        print_json([check.model_dump() for check in checks])
    else:
        for check in checks:
            out.print(f"{'ok  ' if check.is_ok else 'FAIL'} {check.name}: {check.detail}")
            if check.remedy:
                out.print(f"     {check.remedy}")
    failed = [check for check in checks if not check.is_ok]
    if failed:
        raise typer.Exit(EXIT_UNAVAILABLE if all(check.is_service for check in failed) else EXIT_FAULT)


@app.command()
def plan(
    gpu_gb: Annotated[float, typer.Option(min=0.1, help="Memory of the GPU in GB (10^9 bytes).")] = 24.0,
    pages: Annotated[int, typer.Option(min=1, help="Pages of a document.")] = 300,
    concurrency: Annotated[int, typer.Option(min=1, help="Documents read at a time.")] = 16,
    preset: Annotated[str, typer.Option(help="Page groups: paper or v1-safe.")] = "v1-safe",
    group_pages: Annotated[int | None, typer.Option(min=1, help="Pages in a group, in place of the preset's.")] = None,
    margin: Annotated[float, typer.Option(min=0.0, max=0.99, help="Share kept free for what is not counted.")] = 0.2,
    kernel: Annotated[bool, typer.Option(help="With the Triton kernel, selected blocks are not copied.")] = True,
    model: Annotated[Path | None, typer.Option(help="Folder of a checkpoint; default: baidu/Unlimited-OCR.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what memory the OCR2 engine needs, whether it fits a GPU, and what at most does."""
    from ocr2_core.ocr2.memory_plan import PlanRequest, make_plan, plan_lines
    from ocr2_core.ocr2.memory_plan import as_json as plan_json
    from ocr2_core.ocr2.model_geometry import ModelGeometry

    with errors_to_exit_codes():
        budget = make_plan(
            PlanRequest(
                gpu_bytes=round(gpu_gb * 1e9),
                page_count=pages,
                concurrency=concurrency,
                preset=preset,
                page_chunk_size=group_pages,
                margin=margin,
                has_kernel=kernel,
                geometry=ModelGeometry() if model is None else ModelGeometry.from_checkpoint(model),
            )
        )
        if as_json:
            print_json(plan_json(budget))
        else:
            out.print("\n".join(plan_lines(budget)))


for command in (
    cli_quality.questions,
    cli_quality.evaluate,
    cli_index.reembed,
    cli_index.collections,
    cli_index.snapshot,
    cli_structure.view,
    cli_structure.correct,
    cli_structure.corrections,
):
    app.command()(command)


def _run_id() -> str:
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid4().hex[:6]}"


def _print_parsed(outcomes: list[dict[str, object]], as_json: bool) -> None:
    if as_json:
        print_json(outcomes)
        return
    for outcome in outcomes:
        if outcome["status"] != "refused":
            out.print(f"{outcome['status']:<8} {outcome['file']} → {outcome['output']}  {outcome['counts']}")


def main() -> None:
    """Entry point of the `ocr2kb` command."""
    logging.captureWarnings(True)
    app()


if __name__ == "__main__":
    main()
