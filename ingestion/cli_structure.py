"""Commands about a document's structure: look at it, correct it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError

from ingestion.cli_output import AsJson, err, errors_to_exit_codes, out, print_json
from ingestion.report import EXIT_REFUSED
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from ocr2_core.blocks import BlockLabel

EXIT_USAGE = 2
Source = Annotated[str, typer.Argument(help="s3://bucket/key, or a key of the source bucket.")]


def view(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for view.html and the page images.")] = Path(
        "view"
    ),
) -> None:
    """Write a published document for eyes: pages with boxes, the recovered tree with its evidence beside them."""
    from ingestion.published import write_published_view
    from ingestion.status import source_address

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        try:
            path = write_published_view(workspace, *source_address(workspace, source), output)
        except OSError as error:
            err.print(f"{output}: {error.strerror or error}", style="red", markup=False)
            raise typer.Exit(EXIT_REFUSED) from None
    out.print(str(path), markup=False)


def correct(
    source: Source,
    page: Annotated[int, typer.Option(min=1, help="Page number, from 1.")],
    box: Annotated[str, typer.Option(help="x0,y0,x1,y1 in 0..999 of the page, as `view` and `search` give it.")],
    level: Annotated[int | None, typer.Option(min=1, help="It is a heading of this level.")] = None,
    label: Annotated[BlockLabel | None, typer.Option(help="It is this, and no heading.")] = None,
    text: Annotated[str | None, typer.Option(help="It reads so.")] = None,
    order: Annotated[int | None, typer.Option(min=1, help="Its place in the page's reading order.")] = None,
    as_json: AsJson = False,
) -> None:
    """Correct one block of a published document; the source's next `ingest` takes it, without reading pages again."""
    from ingestion.published import correct as keep
    from ingestion.status import source_address
    from structure_recovery.corrections import Correction

    try:
        left, top, right, bottom = (float(value) for value in box.split(","))
    except ValueError:
        _usage(f"--box {box!r} is not x0,y0,x1,y1")
    try:
        correction = Correction.model_validate(
            {
                "page_number": page,
                "bbox_norm": (left, top, right, bottom),
                "level": level,
                "label": label,
                "text": text,
                "order": order,
            }
        )
    except ValidationError as error:
        told = [(".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")) for each in error.errors()]
        _usage("; ".join(f"--{name}: {message}" if name else message for name, message in told))
    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        bucket, key = source_address(workspace, source)
        kept = keep(workspace, bucket, key, correction)
    if as_json:
        print_json(kept)
    else:
        out.print(f"{len(kept.corrections)} corrections; `ocr2kb ingest s3://{bucket}/{key}` takes them", markup=False)


def corrections(
    source: Source,
    remove: Annotated[int | None, typer.Option(help="Take the correction of this number back.")] = None,
    as_json: AsJson = False,
) -> None:
    """The corrections of a source, numbered."""
    from ingestion.status import source_address

    with errors_to_exit_codes(), Workspace(Settings.load()) as workspace:
        kept = workspace.corrections.read(*source_address(workspace, source))
        if remove is not None:
            try:
                kept = kept.without(remove)
            except IndexError as error:
                _usage(str(error))
            workspace.corrections.write(kept)
    if as_json:
        print_json(kept)
        return
    for number, correction in enumerate(kept.corrections, start=1):
        out.print(f"{number:3} {correction}", markup=False)
    if not kept.corrections:
        out.print("no corrections")


def _usage(message: str) -> NoReturn:
    err.print(message, style="red", markup=False)
    raise typer.Exit(EXIT_USAGE)
