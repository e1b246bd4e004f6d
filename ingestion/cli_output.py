"""How the CLI speaks: results to stdout, diagnostics and progress to stderr, errors to exit codes."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ingestion.errors import AccessRefused, IngestionError, ServiceStartError, ServiceUnavailable
from ingestion.job import Job
from ingestion.report import EXIT_REFUSED
from ocr2_core.ledger import PageResult

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]

EXIT_FAULT = 1
EXIT_UNAVAILABLE = 5

out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def set_up_logging(verbose: bool) -> None:
    """Our own messages at info with `verbose`, else warnings; libraries at warnings only."""
    handler = RichHandler(console=err, show_path=False, markup=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler], force=True)
    for package in ("ingestion", "knowledge_base", "structure_recovery", "ocr2_core"):
        logging.getLogger(package).setLevel(logging.INFO if verbose else logging.WARNING)


def print_json(value: BaseModel | dict[str, Any] | list[Any]) -> None:
    """One JSON document on stdout."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    sys.stdout.write(json.dumps(plain, ensure_ascii=False, indent=1, default=_plain) + "\n")


def _plain(value: object) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


@contextmanager
def errors_to_exit_codes() -> Iterator[None]:
    """Known errors end the program with one clear line and their exit code; others keep their traceback."""
    from knowledge_base.errors import KnowledgeBaseError, KnowledgeBaseUnavailable
    from ocr2_core.errors import EngineUnavailable, OcrError

    try:
        yield
    except (ServiceUnavailable, ServiceStartError, AccessRefused, KnowledgeBaseUnavailable, EngineUnavailable) as error:
        _fail(error, EXIT_UNAVAILABLE)
    except (IngestionError, OcrError, KnowledgeBaseError) as error:
        _fail(error, EXIT_REFUSED)
    except KeyboardInterrupt:
        err.print("stopped; what `ingest` had finished is kept, and the same command goes on from there")
        raise SystemExit(130) from None


def _fail(error: Exception, exit_code: int) -> None:
    err.print(f"error: {error}", style="red")
    raise SystemExit(exit_code) from error


class PageProgress:
    """A progress bar a document on a terminal, nothing elsewhere."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("pages"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=err,
            disable=not err.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> PageProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def start(self, name: str) -> None:
        self._bar.reset(self._task, description=name, total=None)

    def on_stage(self, stage: str, job: Job) -> None:
        name = job.source.key
        if stage == "fetch":
            self.start(name)
        self._bar.update(self._task, description=f"{name}  {job.status.value if stage == 'done' else stage}")

    def on_page(self, result: PageResult, page_count: int) -> None:
        self._bar.update(self._task, total=page_count, completed=result.page.page_number)
