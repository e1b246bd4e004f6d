"""One local file to document, Markdown and report, without a bucket or a knowledge base."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ingestion.job import JobOptions
from ingestion.stages import OnPage
from ingestion.workspace import Workspace
from ocr2_core.ledger import LedgerCounts, PageResult, reconcile

if TYPE_CHECKING:
    from ocr2_core.triage import FileInspection
    from structure_recovery.recover import RecoveredDocument


@dataclass(frozen=True)
class ParsedFile:
    """All that was found in one file."""

    path: Path
    inspection: FileInspection
    results: list[PageResult]
    counts: LedgerCounts
    recovered: RecoveredDocument

    def report(self) -> dict[str, object]:
        """The whole ledger and how each heading was decided, JSON-able."""
        return {
            "file": self.path.name,
            "inspection": self.inspection.model_dump(mode="json", exclude={"outline"}),
            "counts": self.counts.model_dump(),
            "ledger": [result.ledger.model_dump(mode="json") for result in self.results],
            "structure": self.recovered.report.model_dump(mode="json"),
        }

    def write(self, folder: Path) -> None:
        """Write document.json, document.md and report.json into `folder`."""
        from structure_recovery.markdown import to_markdown

        folder.mkdir(parents=True, exist_ok=True)
        document = self.recovered.document
        (folder / "document.json").write_text(document.model_dump_json(exclude_none=True, indent=1), encoding="utf-8")
        (folder / "document.md").write_text(to_markdown(document), encoding="utf-8")
        text = json.dumps(self.report(), ensure_ascii=False, indent=1)
        (folder / "report.json").write_text(text, encoding="utf-8")

    def write_view(self, workspace: Workspace, folder: Path) -> Path:
        """Write view.html and its page images into `folder`; the path of the former."""
        from ingestion.document_view import write_view
        from ingestion.pictures import upright_pages

        pages = [result.page for result in self.results]
        turns = {page.page_index: page.rotation_degrees for page in pages}
        images = upright_pages(self.path, workspace.limits, turns, [page.page_number for page in pages])
        ledger = [result.ledger for result in self.results]
        return write_view(folder, self.recovered.document, self.recovered.report, ledger, images)


def parse_file(workspace: Workspace, path: Path, options: JobOptions, on_page: OnPage | None = None) -> ParsedFile:
    """Triage, read and recover one file. Raises SourceRefused for a bad file, EngineError where no page can be read."""
    from ocr2_core.reading import read_document
    from ocr2_core.triage import inspect_file
    from structure_recovery.recover import recover

    inspection = inspect_file(path, workspace.limits)
    results = []
    for result in read_document(
        path,
        workspace.engine(options),
        options=workspace.reading_options(options),
        inspection=inspection,
        text_layer_engine=workspace.text_layer_engine(),
    ):
        results.append(result)
        if on_page is not None:
            on_page(result, inspection.page_count)
    counts = reconcile((result.ledger for result in results), inspection.page_count)
    recovered = recover([result.page for result in results], name=path.name, outline=inspection.outline)
    return ParsedFile(path, inspection, results, counts, recovered)


def output_folders(paths: list[Path], output: Path) -> list[Path]:
    """A folder for each file, named after it; files of one name get a number, so that none overwrites another."""
    taken: set[str] = set()
    folders = []
    for path in paths:
        names = itertools.chain([path.stem], (f"{path.stem}-{number}" for number in itertools.count(2)))
        # file systems that ignore case would take two such names for one
        name = next(name for name in names if name.casefold() not in taken)
        taken.add(name.casefold())
        folders.append(output / name)
    return folders
