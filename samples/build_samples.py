"""Build the sample scans again from the Debian packages: `python -m samples.build_samples` (needs apt-get, dpkg-deb).

Users do not need this: the results are in the repository. It fetches two free PDF manuals, cuts pages out of them,
degrades them as an office scanner would (seeded) and writes `<name>.pdf` (images only) and `truth/<name>.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus.degrade import write_scan
from benchmarks.corpus.sources import SourceNotFound, default_cache_dir, fetch_pdf
from benchmarks.corpus.truth import Truth, extract_truth

SAMPLES_DIR = Path(__file__).resolve().parent
PROFILE = "sample200"
SEED = 7


@dataclass(frozen=True, slots=True)
class Sample:
    """A cut of one manual; `page_numbers` are 1-based pages of the PDF in the package, in the order of the sample."""

    name: str
    package: str
    path: str
    page_numbers: tuple[int, ...]


SAMPLES = (
    Sample(
        name="tool-setup-guide",
        package="debmake-doc",
        path="/usr/share/doc/debmake-doc/debmake-doc.en.pdf",
        page_numbers=(3, *range(18, 23)),
    ),
    Sample(
        name="ups-user-manual",
        package="nut-doc",
        path="/usr/share/doc/nut-doc/pdf/user-manual.pdf",
        page_numbers=(1, 3, 4, *range(13, 30)),
    ),
)


def sample_truth(truth: Truth) -> dict[str, object]:
    """The small form kept in the repository: outline (level, title, page_number) and the text of each page."""
    return {
        "name": truth.name,
        "outline": [
            {"level": heading.level, "title": heading.title, "printed": heading.printed, "page_number": heading.page}
            for heading in truth.outline
        ],
        "pages": [
            {
                "page_number": page.n,
                "source_page_number": page.src_page,
                "text": "\n".join(block.text for block in page.blocks if not block.furniture),
                "furniture": [block.text for block in page.blocks if block.furniture],
            }
            for page in truth.pages
        ],
    }


def build(sample: Sample, cache_dir: Path, out_dir: Path) -> Path:
    """Write one sample's scan and truth; returns the scan's path."""
    import pymupdf

    # Debian's TeX-made PDFs trigger harmless warnings that would drown real errors.
    pymupdf.TOOLS.mupdf_display_errors(False)
    scan_path = out_dir / f"{sample.name}.pdf"
    truth_path = out_dir / "truth" / f"{sample.name}.json"
    truth_path.parent.mkdir(parents=True, exist_ok=True)
    with pymupdf.open(fetch_pdf(sample.package, sample.path, cache_dir)) as document:
        truth = extract_truth(
            document,
            sample.page_numbers,
            name=sample.name,
            package=sample.package,
            path=sample.path,
            lang="en",
            split="sample",
        )
        write_scan(document, sample.page_numbers, PROFILE, scan_path, name=sample.name, seed=SEED)
    text = json.dumps(sample_truth(truth), ensure_ascii=False, indent=1)
    truth_path.write_text(text + "\n", encoding="utf-8")
    return scan_path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=SAMPLES_DIR, help="folder to write to (default: samples/)")
    parser.add_argument("--cache", type=Path, default=default_cache_dir(), help="folder for downloaded packages")
    arguments = parser.parse_args()
    for sample in SAMPLES:
        try:
            path = build(sample, arguments.cache, arguments.out)
        except SourceNotFound as error:
            sys.stderr.write(f"{sample.name}: {error}\n")
            return 1
        sys.stdout.write(f"{path}: {len(sample.page_numbers)} pages, {path.stat().st_size / 1e6:.2f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
