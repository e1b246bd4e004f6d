"""How well and how fast does the CPU engine read scans, beside Tesseract and pymupdf4llm?

    python benchmarks/bench_ocr_cpu.py CORPUS [--pages 24] [--variant office200] [--skip pymupdf4llm]

CORPUS holds one folder a manual with `truth.json` (`pages[].n`, `pages[].text`, `lang`) and `scanned.<variant>.pdf`
(`benchmarks/corpus` makes it). Pages are spread evenly over the manuals. All engines read every page in turn, after
one warm-up page each, pinned to one CPU, so that all are single-threaded; CPU seconds include child processes, and for
our engine also turning upright and deskewing. Tesseract gets the page as a PNG at 200 dpi and the language's own
model; manuals in languages that it has no model for are left out. pymupdf4llm reads the PDF page with the OCR engine
it chooses by itself, at the scan's 200 dpi.

CER: edit distance over length of the page's text after Unicode and space normalisation; words divided at line ends
count as joined, for all engines and the truth alike. Word F1: F1 over the multisets of words, order-free. Prints a
table, then one line of JSON.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import pymupdf
from rapidfuzz.distance import Levenshtein

from ocr2_core.engines import create_engine
from ocr2_core.rendering import RawPage
from ocr2_core.upright import BlankPage, prepare

_TESSERACT_LANGUAGES = {"en": "eng", "de": "deu", "fr": "fra", "es": "spa", "it": "ita", "ja": "jpn", "zh": "chi_sim"}
_DPI = 200


@dataclass(frozen=True)
class Page:
    name: str
    language: str
    number: int
    pdf: Path
    truth: str
    gray: np.ndarray


@dataclass
class Tally:
    cer: list[float] = field(default_factory=list)
    word_f1: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)


def normalise(text: str) -> str:
    """One form for what print does not tell apart: dashes, quotes, bullets, leaders, spaces, hyphens at line ends."""
    text = unicodedata.normalize("NFKC", text).replace("\u00ad", "")
    for pattern, plain in (
        ("[‐‑‒–—−]", "-"),
        ("[‘’‚`´]", "'"),
        ("[“”„«»]", '"'),
        ("[•·∙●▪]", "*"),
        (r"(\. ?){4,}", " ... "),
        (r"\s+", " "),
        (r"(?<=[^\W\d_])- (?=[a-zà-öø-ÿ])", ""),
    ):
        text = re.sub(pattern, plain, text)
    return text.strip()


def _without_spaces(truth: str) -> bool:
    return len(re.findall("[\u3040-\u30ff\u4e00-\u9fff]", truth)) > 0.1 * max(1, len(truth))


def cer(truth: str, text: str) -> float:
    truth, text = normalise(truth), normalise(text)
    if _without_spaces(truth):
        truth, text = truth.replace(" ", ""), text.replace(" ", "")
    return min(1.0, Levenshtein.distance(truth, text) / max(1, len(truth)))


def word_f1(truth: str, text: str) -> float:
    pattern = r"\w" if _without_spaces(normalise(truth)) else r"\w+"
    wanted = collections.Counter(re.findall(pattern, normalise(truth)))
    found = collections.Counter(re.findall(pattern, normalise(text)))
    return 2 * sum((wanted & found).values()) / max(1, sum(wanted.values()) + sum(found.values()))


def load_pages(corpus: Path, variant: str, count: int, languages: set[str] | None) -> list[Page]:
    manuals = []
    for truth_file in sorted(corpus.glob("*/truth.json")):
        pdf = truth_file.parent / f"scanned.{variant}.pdf"
        truth = json.loads(truth_file.read_text("utf-8"))
        if not pdf.exists() or (languages is not None and truth["lang"] not in languages):
            continue
        texts = [(page["n"], page["text"]) for page in truth["pages"] if len(normalise(page["text"])) >= 80]
        manuals.append((truth_file.parent.name, truth["lang"], pdf, texts))
    pages = []
    for index, (name, language, pdf, texts) in enumerate(manuals):
        share = count // len(manuals) + (index < count % len(manuals))
        with pymupdf.open(pdf) as document:
            for place in np.linspace(0, len(texts) - 1, share + 2)[1:-1]:
                number, text = texts[round(float(place))]
                pixmap = document[number - 1].get_pixmap(dpi=_DPI, colorspace=pymupdf.csGRAY)
                gray = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width).copy()
                pages.append(Page(name, language, number, pdf, text, gray))
    return pages


def make_ours() -> Callable[[Page], str]:
    engine = create_engine("rapidocr", thread_count=1)

    def read(page: Page) -> str:
        prepared = prepare(RawPage(page_index=0, image=page.gray, dpi=_DPI))
        if isinstance(prepared, BlankPage):
            return ""
        (result,) = engine.read_pages([prepared])
        if result.ledger.status.value == "failed":
            print(f"{page.name} page {page.number}: {result.ledger.reason}", file=sys.stderr)
        texts = [re.sub(r"<[^>]+>", " ", b.text) if b.label.value == "table" else b.text for b in result.page.blocks]
        return "\n".join(texts)

    return read


def make_tesseract(folder: Path) -> Callable[[Page], str]:
    images: dict[tuple[str, int], Path] = {}

    def read(page: Page) -> str:
        command = ["tesseract", str(images[page.name, page.number]), "-", "--dpi", str(_DPI)]
        command += ["-l", _TESSERACT_LANGUAGES[page.language]]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    def prepared(page: Page) -> str:
        path = folder / f"{page.name}-{page.number}.png"
        if not path.exists():
            cv2.imwrite(str(path), page.gray)
        images[page.name, page.number] = path
        return read(page)

    return prepared


def make_pymupdf4llm() -> Callable[[Page], str]:
    import pymupdf4llm

    def read(page: Page) -> str:
        with pymupdf.open(page.pdf) as document:
            return str(pymupdf4llm.to_text(document, pages=[page.number - 1], ocr_dpi=_DPI))

    return read


def tesseract_languages() -> set[str]:
    try:
        listed = subprocess.run(["tesseract", "--list-langs"], capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return set()
    models = set(listed.stdout.split())
    return {language for language, model in _TESSERACT_LANGUAGES.items() if model in models}


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(engines: dict[str, Callable[[Page], str]], pages: list[Page]) -> dict[str, Tally]:
    tallies = {name: Tally() for name in engines}
    for read in engines.values():
        read(pages[0])
    for number, page in enumerate(pages, 1):
        for name, read in engines.items():
            cpu, wall = cpu_seconds(), time.perf_counter()
            text = read(page)
            tally = tallies[name]
            tally.cpu_s.append(cpu_seconds() - cpu)
            tally.wall_s.append(time.perf_counter() - wall)
            tally.cer.append(cer(page.truth, text))
            tally.word_f1.append(word_f1(page.truth, text))
        scores = "  ".join(f"{name} {t.word_f1[-1]:.4f} {t.cpu_s[-1]:.2f}s" for name, t in tallies.items())
        print(f"{number}/{len(pages)} {page.name} p{page.number}: {scores}", file=sys.stderr)
    return tallies


def report(tallies: dict[str, Tally]) -> None:
    base = tallies.get("tesseract")
    columns = ("CPU s/page", "wall s/page", "CER median", "F1 mean", "F1 median", "x Tesseract")
    print(f"{'engine':12}" + "".join(f"{column:>12}" for column in columns))
    summary: dict[str, float | int] = {"pages": len(next(iter(tallies.values())).cer)}
    for name, tally in tallies.items():
        seconds = statistics.fmean(tally.cpu_s)
        ratio = seconds / statistics.fmean(base.cpu_s) if base else float("nan")
        print(
            f"{name:12}{seconds:12.2f}{statistics.fmean(tally.wall_s):12.2f}{statistics.median(tally.cer):12.4f}"
            f"{statistics.fmean(tally.word_f1):12.4f}{statistics.median(tally.word_f1):12.4f}{ratio:12.2f}"
        )
        summary[f"word_f1_{name}"] = round(statistics.fmean(tally.word_f1), 4)
        summary[f"word_f1_median_{name}"] = round(statistics.median(tally.word_f1), 4)
        summary[f"cer_median_{name}"] = round(statistics.median(tally.cer), 4)
        summary[f"cpu_s_{name}"] = round(seconds, 3)
        summary[f"wall_s_{name}"] = round(statistics.fmean(tally.wall_s), 3)
    if base and "ours" in tallies:
        summary["time_ratio_tesseract"] = round(
            statistics.fmean(tallies["ours"].cpu_s) / statistics.fmean(base.cpu_s), 3
        )
    print(json.dumps(summary))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--pages", type=int, default=24)
    parser.add_argument("--variant", default="office200")
    parser.add_argument("--skip", action="append", default=[], choices=["tesseract", "pymupdf4llm"])
    arguments = parser.parse_args()
    os.environ["OMP_THREAD_LIMIT"] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cv2.setNumThreads(1)
    languages = tesseract_languages()
    if not languages and "tesseract" not in arguments.skip:
        print("Tesseract is not installed: it is left out (apt-get install tesseract-ocr).", file=sys.stderr)
        arguments.skip.append("tesseract")
    pages = load_pages(
        arguments.corpus, arguments.variant, arguments.pages, None if "tesseract" in arguments.skip else languages
    )
    if not pages:
        print(f"no pages of variant {arguments.variant!r} under {arguments.corpus}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        engines = {"ours": make_ours()}
        if "tesseract" not in arguments.skip:
            engines["tesseract"] = make_tesseract(Path(folder))
        if "pymupdf4llm" not in arguments.skip:
            engines["pymupdf4llm"] = make_pymupdf4llm()
        report(measure(engines, pages))
    return 0


if __name__ == "__main__":
    sys.exit(main())
