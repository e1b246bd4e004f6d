"""Does `ocr2kb parse` stay flat? Memory of the whole process tree, and the cost of a page early and late.

    python -m benchmarks.bench_parse_memory [--pages 80] [--file samples/ups-user-manual.pdf]

The document is the file's pages repeated, so that the same page is read early and late: their ratio is not a matter of
what stands on them. Cost is CPU time of the process and its children, which other work on the machine does not stretch.
Memory is the resident set summed over the same processes, sampled five times a second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pymupdf

from ingestion.job import JobOptions
from ingestion.parsing import parse_file
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from ocr2_core.ledger import PageResult

ROOT = Path(__file__).parents[1]


def repeated(path: Path, page_count: int, target: Path) -> int:
    """Write `page_count` pages, the file's own over and over; returns how many the file has."""
    source = pymupdf.open(path)
    document = pymupdf.open()
    while document.page_count < page_count:
        document.insert_pdf(source, to_page=min(source.page_count, page_count - document.page_count) - 1)
    document.save(target)
    return int(source.page_count)


class Meter:
    """Memory and CPU time of this process and its children."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._child_cpu_s: dict[int, float] = {}
        self.rss_bytes: list[int] = []
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_s(self) -> float:
        """CPU seconds so far; children that have ended keep their last known figure."""
        for child in self._process.children(recursive=True):
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._child_cpu_s[child.pid] = times.user + times.system
        return time.process_time() + sum(self._child_cpu_s.values())

    def _sample(self) -> None:
        while not self._stop.wait(0.2):
            total = 0
            for member in [self._process, *self._process.children(recursive=True)]:
                try:
                    total += member.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.rss_bytes.append(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=80)
    parser.add_argument("--file", type=Path, default=ROOT / "samples" / "ups-user-manual.pdf")
    arguments = parser.parse_args()
    cpu_s: list[float] = []
    with TemporaryDirectory() as folder, Workspace(Settings.load()) as workspace, Meter() as meter:
        document = Path(folder) / "document.pdf"
        period = repeated(arguments.file, arguments.pages, document)

        def on_page(_: PageResult, page_count: int) -> None:
            cpu_s.append(meter.cpu_s())
            if len(cpu_s) == page_count // 2:
                first_half.append(max(meter.rss_bytes))

        first_half: list[int] = []
        started = time.monotonic()
        parse_file(workspace, document, JobOptions(ocr="always"), on_page).write(Path(folder) / "out")
        wall_s = time.monotonic() - started
    # the first page carries the loading of the models: it is left out of both rounds
    page_cpu_s = [later - earlier for earlier, later in itertools.pairwise(cpu_s)]
    rounds = [page_cpu_s[first : first + period - 1] for first in range(0, len(page_cpu_s) - period + 2, period)]
    late_over_early = sum(rounds[-1]) / sum(rounds[0])
    peak_mb, first_half_mb = max(meter.rss_bytes) / 2**20, first_half[0] / 2**20
    print(f"{len(cpu_s)} pages in {wall_s:.0f} s; {statistics.median(page_cpu_s):.2f} CPU s a page (median)")
    for number, durations in enumerate(rounds):
        first, last = number * period + 2, number * period + period
        print(f"  pages {first:>3} to {last:>3}: {statistics.mean(durations):.2f} CPU s a page (mean)")
    print(f"the same pages, last round over first: {late_over_early:.2f}")
    print(f"memory: {first_half_mb:.0f} MB at most in the first half, {peak_mb:.0f} MB at most over all")
    summary = {
        "page_count": len(cpu_s),
        "cpu_s_a_page_median": round(statistics.median(page_cpu_s), 3),
        "late_over_early": round(late_over_early, 3),
        "peak_mb": round(peak_mb),
        "peak_mb_first_half": round(first_half_mb),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
