"""`make demo`: two scanned manuals through the real services under Airflow, then three questions with cited answers.

Run as `python -m ingestion.demo [up | stop | status | airflow …]`. Only the choice of manuals and questions is the
demo's own: the services, the DAG and the search are those that everything else uses.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from ingestion.answers import answer_lines
from ingestion.cli_output import err, errors_to_exit_codes, out, set_up_logging
from ingestion.errors import ServiceStartError
from ingestion.listing import list_sources
from ingestion.report import RunSummary, summarise
from ingestion.run_watch import RunWatcher
from ingestion.services.stack import DAG_ID, REPOSITORY, EmbeddedStack, StackAccess
from ingestion.settings import Settings
from ingestion.workspace import Workspace

SAMPLES = REPOSITORY / "samples"
RUN_TIMEOUT_S = 1800.0
PDF_TYPE = "application/pdf"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)

S3Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the S3 gateway; default 9000 or any free.")]
AirflowPort = Annotated[int | None, typer.Option(min=1, max=65535, help="Port of Airflow; default 8080 or any free.")]


class Timer:
    """Names and seconds of the parts of a demo."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, float]] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.parts.append((name, time.monotonic() - started))

    def line(self) -> str:
        total = sum(seconds for _, seconds in self.parts)
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.parts) + f"; {total:.1f} s in all"


@app.callback(invoke_without_command=True)
def demo(context: typer.Context, s3_port: S3Port = None, airflow_port: AirflowPort = None) -> None:
    """Ingest two scanned manuals under Airflow and answer three questions."""
    set_up_logging(verbose=False)
    if context.invoked_subcommand is None:
        with errors_to_exit_codes():
            run_demo(s3_port, airflow_port)


@app.command()
def up(s3_port: S3Port = None, airflow_port: AirflowPort = None) -> None:
    """Start the embedded services and say how to reach them."""
    with errors_to_exit_codes():
        access, workspace = start_services(s3_port, airflow_port)
        workspace.close()
        print_access(access)


@app.command()
def stop() -> None:
    """Stop the embedded services; their data stays."""
    with errors_to_exit_codes():
        state_dir = Settings.load().state_dir
        stopped = EmbeddedStack(state_dir).stop()
        out.print(f"stopped {', '.join(stopped)}" if stopped else f"nothing was running in {state_dir}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def airflow(context: typer.Context) -> None:
    """Run an Airflow command on the embedded services, for example `airflow backfill create …`."""
    with errors_to_exit_codes():
        raise typer.Exit(EmbeddedStack(Settings.load().state_dir).airflow_command(context.args))


@app.command()
def status() -> None:
    """Say which embedded services run."""
    with errors_to_exit_codes():
        for name, is_running in EmbeddedStack(Settings.load().state_dir).status().items():
            out.print(f"{name:<12} {'runs' if is_running else 'does not run'}")


def run_demo(s3_port: int | None, airflow_port: int | None) -> None:
    """The whole demo. Exits with 1 when the run fails."""
    manuals = sorted(SAMPLES.glob("*.pdf"))
    if not manuals:
        raise ServiceStartError(f"no sample manuals in {SAMPLES}")
    timer = Timer()
    out.print(f"ocr2-kb demo: {len(manuals)} scanned manuals from {SAMPLES.name}/\n")
    with timer.part("services"):
        access, workspace = start_services(s3_port, airflow_port)
    with workspace:
        with timer.part("upload"):
            revisions = upload(workspace, manuals)
        point_count_before = point_count(workspace)
        out.print(f"\nAirflow runs the DAG {DAG_ID} ({access.airflow.url}/dags/{DAG_ID})")
        with timer.part("DAG run"):
            run_id, state, summary = ingest(access, workspace, revisions)
        out.print()
        out.print("\n".join(summary.lines()))
        point_count_after = point_count(workspace)
        if all(document.status == "unchanged" for document in summary.documents):
            out.print(f"both were published before: {point_count_before} points before, {point_count_after} now")
        if state != "success":
            err.print("\nthe run failed; its red tasks say:", style="red")
            err.print("\n".join(f"  {line}" for line in access.airflow.failures(DAG_ID, run_id)))
            print_access(access)
            raise typer.Exit(1)
        with timer.part("answers"):
            answer(workspace, sample_questions())
    out.print(f"\n{timer.line()}\n")
    print_access(access)


def start_services(s3_port: int | None, airflow_port: int | None) -> tuple[StackAccess, Workspace]:
    """The running services and a workspace on them, with its buckets made."""
    state_dir = Settings.load().state_dir
    started = time.monotonic()

    def say(step: str) -> None:
        out.print(f"  {time.monotonic() - started:6.1f} s  starting {step}")

    access = EmbeddedStack(state_dir, s3_port=s3_port, airflow_port=airflow_port).start(say)
    # given explicitly: an object store named in the environment is not the one started here
    settings = Settings.load(
        state_dir=access.state_dir,
        s3_endpoint=access.s3.endpoint,
        s3_access_key=access.s3.access_key,
        s3_secret_key=access.s3.secret_key,
    )
    workspace = Workspace(settings)
    workspace.ensure_buckets()
    out.print(f"  {time.monotonic() - started:6.1f} s  all services answer")
    return access, workspace


def upload(workspace: Workspace, manuals: list[Path]) -> dict[str, str]:
    """Upload what is not there yet, byte for byte; returns object key → revision."""
    bucket = workspace.settings.source_bucket
    etags = {item.key: item.etag for item in workspace.store.list(bucket)}
    revisions = {}
    for path in manuals:
        data = path.read_bytes()
        is_there = etags.get(path.name) == hashlib.md5(data, usedforsecurity=False).hexdigest()
        if not is_there:
            workspace.store.put_bytes(bucket, path.name, data, content_type=PDF_TYPE)
        out.print(f"  s3://{bucket}/{path.name}  {len(data) / 1e6:.1f} MB  {'is there' if is_there else 'uploaded'}")
        revisions[path.name] = hashlib.sha256(data).hexdigest()
    return revisions


def ingest(access: StackAccess, workspace: Workspace, revisions: dict[str, str]) -> tuple[str, str, RunSummary]:
    """Trigger the DAG on these objects, show its progress, and return the run's id, state and summary."""
    # the object store's clock is this machine's; its times have whole seconds
    started_at = datetime.now(UTC) - timedelta(seconds=1)
    keys = list(revisions)
    run_id = access.airflow.trigger(DAG_ID, {"keys": keys})
    watcher = RunWatcher(access.airflow, workspace, out, revisions, started_at)
    try:
        state = watcher.watch(DAG_ID, run_id, timeout_s=RUN_TIMEOUT_S)
    except KeyboardInterrupt:
        err.print(f"\nno longer watching; the run goes on, see {access.airflow.url}. `make stop` ends the services.")
        raise typer.Exit(130) from None
    sources = list_sources(workspace.store, workspace.settings.source_bucket, keys=keys)
    return run_id, state, summarise(workspace.manifests, sources, run_id)


def point_count(workspace: Workspace) -> int:
    """How many points the knowledge base holds; 0 before the first load."""
    with workspace.open_knowledge_base() as knowledge_base:
        return knowledge_base.count()


def sample_questions() -> list[str]:
    """Three questions: two about the manual with the most of them, one about the other."""
    by_source: dict[str, list[str]] = {}
    for line in (SAMPLES / "questions.jsonl").read_text().splitlines():
        entry = json.loads(line)
        by_source.setdefault(entry["source"], []).append(entry["question"])
    first, *others = sorted(by_source.values(), key=len, reverse=True)
    return [first[0], first[len(first) // 2], *(questions[0] for questions in others)][:3]


def answer(workspace: Workspace, questions: list[str]) -> None:
    """Print the best hit for each question: manual, section path, page, box, text."""
    from knowledge_base.search import search

    # models load before the index opens: the local index is locked while it is open
    embedder, sparse_encoder = workspace.embedder, workspace.sparse_encoder
    with workspace.open_knowledge_base() as knowledge_base:
        for question in questions:
            hits = search(knowledge_base, embedder, sparse_encoder, question, k=1)
            out.print(f"\nQ  {question}")
            for line in answer_lines(1, hits[0]) if hits else ["no answer found"]:
                out.print(f"   {line}")


def print_access(access: StackAccess) -> None:
    """How to look around and how to stop."""
    out.print(f"Airflow UI   {access.airflow.url}   user {access.airflow_user}, password {access.airflow_password}")
    out.print(f"S3 endpoint  {access.s3.endpoint}   access key {access.s3.access_key}, secret in {access.state_dir}")
    out.print('Ask          .venv/bin/ocr2kb search "your question"')
    out.print("Stop         make stop")


def main() -> None:
    """Entry point of `python -m ingestion.demo`."""
    app()


if __name__ == "__main__":
    main()
