"""Is this file one we can read? What it is, how many pages it has, what it says about itself; or why it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ocr2_core.blocks import OutlineEntry
from ocr2_core.errors import SourceRefused
from ocr2_core.limits import Limits
from ocr2_core.media_type import SNIFF_BYTES, MediaType, describe_unsupported, find_media_type
from ocr2_core.worker_process import WorkerDied, WorkerProcess, WorkerTimedOut

__all__ = ["FileInspection", "Limits", "inspect_file"]


class FileInspection(BaseModel):
    """What a file says about itself.

    `page_labels` (printed page names such as `iv`) has one entry a page, or none at all where the file defines none.
    `repaired`: the PDF's cross-reference table was damaged and has been rebuilt; pages may be missing from it.
    """

    model_config = ConfigDict(frozen=True)

    media_type: MediaType
    file_bytes: int = Field(gt=0)
    page_count: int = Field(gt=0)
    title: str | None = None
    outline: list[OutlineEntry] = Field(default_factory=list)
    page_labels: list[str] = Field(default_factory=list)
    repaired: bool = False

    def page_label(self, page_index: int) -> str | None:
        """The printed name of a page, or None."""
        return self.page_labels[page_index] or None if page_index < len(self.page_labels) else None


def inspect_file(path: Path, limits: Limits | None = None) -> FileInspection:
    """Look at a file in a child process, within `limits`.

    Raises SourceRefused with one of the codes `empty`, `too_large`, `unsupported`, `encrypted`,
    `encryption_unsupported`, `damaged`, `no_pages`, `too_many_pages`, `pixel_bomb`, `crashed`, `timed_out` and
    `out_of_memory`; OSError where the file cannot be opened at all.
    """
    limits = limits or Limits()
    file_bytes, media_type = _look_from_outside(path, limits)
    request = {
        "job": "inspect",
        "path": str(path.resolve()),
        "media_type": media_type,
        "limits": limits.model_dump(),
    }
    worker = WorkerProcess(request)
    try:
        answer, _ = worker.read_message(limits.inspect_timeout_s)
    except WorkerTimedOut:
        raise SourceRefused(
            "timed_out",
            f"The file could not be looked through within {limits.inspect_timeout_s:g} s.",
            "Raise the limit inspect_timeout_s if the file is known to be good, or save it anew with another program.",
        ) from None
    except WorkerDied as death:
        raise SourceRefused(
            "crashed",
            f"The parser crashed on this file ({death}).",
            "Save the file anew with another program (print to PDF, or `qpdf in.pdf out.pdf`) and try again.",
        ) from None
    finally:
        worker.close()
    raise_if_refused(answer)
    return FileInspection(media_type=media_type, file_bytes=file_bytes, **answer["inspection"])


def raise_if_refused(answer: dict[str, Any]) -> None:
    """Raise the SourceRefused that a child sent, if it sent one."""
    if "refused" in answer:
        raise SourceRefused(**answer["refused"])


def _look_from_outside(path: Path, limits: Limits) -> tuple[int, MediaType]:
    """What can be told without parsing: size and kind."""
    file_bytes = path.stat().st_size
    if file_bytes == 0:
        raise SourceRefused("empty", "The file has 0 bytes.", "Upload it again; the transfer may have been cut short.")
    if file_bytes > limits.max_file_bytes:
        raise SourceRefused(
            "too_large",
            f"The file has {file_bytes:,} bytes; the limit max_file_bytes is {limits.max_file_bytes:,}.",
            "Split the file, or raise the limit.",
        )
    with path.open("rb") as file:
        head = file.read(SNIFF_BYTES)
    media_type = find_media_type(head)
    if media_type is None:
        raise SourceRefused(
            "unsupported",
            f"The file is neither PDF, TIFF, PNG nor JPEG; it seems to be {describe_unsupported(head)}.",
            "Convert it to PDF first.",
        )
    return file_bytes, media_type
