"""The child process: opens one hostile file within its memory limit and sends what it finds to its parent.

Started by WorkerProcess as `python -m ocr2_core.render_worker`; it reads one JSON request from standard input. Job
`inspect` answers with one message, job `render` with `{"ready": true}` and then one message a page, in the order asked.
It works on one page at a time and blocks on the pipe, so it is never more than one page ahead of what the parent has
taken, and the parent always knows which page it died on.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from ocr2_core.errors import SourceRefused
from ocr2_core.limits import Limits
from ocr2_core.page_raster import PageFile, PageRaster, PageUnreadable

_MAX_WRITTEN_BYTES = 1024 * 1024


def main() -> None:
    output = _take_over_stdout()
    request = json.loads(sys.stdin.buffer.readline())
    limits = Limits(**request["limits"])
    _end_with_parent()
    _load_parser(request["media_type"])
    _confine(limits.memory_limit_bytes)
    try:
        pages = _open(request, limits)
        if request["job"] == "inspect":
            _send(output, {"inspection": pages.describe()})
            return
        _send(output, {"ready": True})
    except SourceRefused as refusal:
        _send(output, _refused(refusal.code, refusal.cause, refusal.remedy))
        return
    except MemoryError:
        _send(
            output,
            _refused(
                "out_of_memory",
                f"Opening the file needs more memory than memory_limit_bytes ({limits.memory_limit_bytes:,}) allows.",
                "Save the file anew with another program, or raise the limit if the file is known to be good.",
            ),
        )
        return
    except Exception as error:
        _send(
            output,
            _refused(
                "damaged",
                f"The file cannot be parsed ({type(error).__name__} in {_place_of(error)}).",
                "Open it in a viewer and save it anew.",
            ),
        )
        return
    for page_index in request["page_indices"]:
        _send_page(output, pages, page_index)


def _load_parser(media_type: str) -> None:
    """Load the library the file needs, and no other, before memory is limited: starting takes half a second or more."""
    if media_type == "application/pdf":
        # where the layout plugin is installed, importing pymupdf loads it with onnxruntime and all, for nothing
        sys.modules.setdefault("pymupdf.layout", None)  # type: ignore[arg-type]
        import ocr2_core.pdf_pages
    else:
        import ocr2_core.image_pages  # noqa: F401


def _open(request: dict[str, Any], limits: Limits) -> PageFile:
    path = Path(request["path"])
    colour = bool(request.get("colour"))
    if request["media_type"] == "application/pdf":
        from ocr2_core.pdf_pages import PdfPages

        return PdfPages(path, limits, colour=colour, with_text_layer=bool(request.get("with_text_layer")))
    from ocr2_core.image_pages import ImagePages

    return ImagePages(path, limits, request["media_type"], colour=colour)


def _send_page(output: int, pages: PageFile, page_index: int) -> None:
    start = time.perf_counter()
    try:
        raster = pages.render(page_index)
    except PageUnreadable as trouble:
        _send(output, {"page_index": page_index, "failure": {"code": trouble.code, "reason": trouble.reason}})
        return
    except MemoryError:
        reason = "rendering the page needs more memory than memory_limit_bytes allows"
        _send(output, {"page_index": page_index, "failure": {"code": "out_of_memory", "reason": reason}})
        return
    except Exception as error:
        # a hostile page can raise anything from the parsers; its text may quote the document, its place in the code not
        reason = f"the page cannot be rendered ({type(error).__name__} in {_place_of(error)})"
        _send(output, {"page_index": page_index, "failure": {"code": "damaged", "reason": reason}})
        return
    _send(output, _page_header(page_index, raster, time.perf_counter() - start), raster.pixels)


def _page_header(page_index: int, raster: PageRaster, duration_s: float) -> dict[str, Any]:
    return {
        "page_index": page_index,
        "width_px": raster.width_px,
        "height_px": raster.height_px,
        "channels": raster.channels,
        "dpi": raster.dpi,
        "duration_s": duration_s,
        "byte_count": len(raster.pixels),
        **raster.notes,
    }


def _place_of(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _refused(code: str, cause: str, remedy: str) -> dict[str, Any]:
    return {"refused": {"code": code, "cause": cause, "remedy": remedy}}


def _send(output: int, header: dict[str, Any], payload: bytes | memoryview = b"") -> None:
    text = json.dumps(header).encode()
    for part in (len(text).to_bytes(4, "big") + text, payload):
        view = memoryview(part)
        while view:
            view = view[os.write(output, view) :]


def _take_over_stdout() -> int:
    """A private copy of standard output for messages; what C libraries print goes to standard error instead."""
    output = os.dup(1)
    os.dup2(2, 1)
    return output


def _end_with_parent() -> None:
    """Have the kernel end this process when the parent's end of standard input closes.

    SIGIO's default action ends the process even while it hangs inside MuPDF, where no Python thread could run; and
    unlike the parent-death signal it does not care which thread of the parent started us.
    """
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | fcntl.FASYNC)
    if select.select([0], [], [], 0)[0]:
        os._exit(1)


def _confine(memory_limit_bytes: int) -> None:
    """Limit memory to what the libraries have mapped already plus `memory_limit_bytes`; forbid core dumps and files.

    MuPDF and numpy reserve some 500 MB of address space they never touch, hence a limit on top of what is mapped now.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_WRITTEN_BYTES, _MAX_WRITTEN_BYTES))
    try:
        mapped_pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        # no /proc (macOS), where RLIMIT_AS is not honoured either: the parent's time limit is all there is
        return
    limit = mapped_pages * resource.getpagesize() + memory_limit_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
