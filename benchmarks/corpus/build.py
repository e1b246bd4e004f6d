"""Build the benchmark corpus: `python -m benchmarks.corpus.build SPEC OUT --profile office200`.

For each manual of SPEC (see manuals.json) it writes OUT/NAME/born.pdf (the pages, text layer kept, bookmarks removed),
OUT/NAME/truth.json (text, blocks, gold outline) and OUT/NAME/scanned.PROFILE.pdf (images only). Debian with apt-get.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.corpus.degrade import PROFILES, write_scan
from benchmarks.corpus.sources import ManualSpec, SourceNotFound, default_cache_dir, fetch_pdf
from benchmarks.corpus.truth import Truth, extract_truth

DEFAULT_SEED = 7


def load_specs(path: Path) -> list[ManualSpec]:
    """The manuals of a specification file: a JSON list of objects with the fields of ManualSpec."""
    return [ManualSpec.model_validate(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def build_manual(spec: ManualSpec, out_dir: Path, profiles: list[str], *, seed: int, cache_dir: Path) -> Truth:
    """Write one manual's files into OUT/NAME and return its truth. Raises SourceNotFound."""
    import pymupdf

    # TeX-made PDFs trigger harmless warnings that would drown real errors.
    pymupdf.TOOLS.mupdf_display_errors(False)
    folder = out_dir / spec.name
    folder.mkdir(parents=True, exist_ok=True)
    with pymupdf.open(fetch_pdf(spec.package, spec.path, cache_dir)) as document:
        first, last = spec.pages[0], min(spec.pages[1], document.page_count)
        page_numbers = range(first, last + 1)
        truth = extract_truth(
            document,
            page_numbers,
            name=spec.name,
            package=spec.package,
            path=spec.path,
            lang=spec.lang,
            split=spec.split,
        )
        (folder / "truth.json").write_text(truth.model_dump_json(), encoding="utf-8")
        with pymupdf.open() as born:
            born.insert_pdf(document, from_page=first - 1, to_page=last - 1)
            born.set_toc([])
            born.set_metadata({})
            born.save(folder / "born.pdf", garbage=3, deflate=True, no_new_id=True)
        for profile in profiles:
            scan_path = folder / f"scanned.{profile}.pdf"
            write_scan(document, page_numbers, profile, scan_path, name=spec.name, seed=seed)
    return truth


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus.build", description=__doc__)
    parser.add_argument("spec", type=Path, help="specification, e.g. benchmarks/corpus/manuals.json")
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--profile", action="append", choices=sorted(PROFILES), help="repeatable; default office200")
    parser.add_argument("--no-scan", action="store_true", help="truth and born-digital cut only")
    parser.add_argument("--split", help="only manuals of this split")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this manual; repeatable")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--cache", type=Path, default=default_cache_dir(), help="folder for downloaded packages")
    options = parser.parse_args(arguments)
    specs = load_specs(options.spec)
    unknown = set(options.only or []) - {spec.name for spec in specs}
    if unknown:
        parser.error(f"{options.spec} has no manual named {', '.join(sorted(unknown))}")
    profiles = [] if options.no_scan else options.profile or ["office200"]
    failed = 0
    for spec in specs:
        if (options.split and spec.split != options.split) or (options.only and spec.name not in options.only):
            continue
        try:
            truth = build_manual(spec, options.out, profiles, seed=options.seed, cache_dir=options.cache)
        except SourceNotFound as error:
            print(f"{spec.name}: {error}", file=sys.stderr)
            failed += 1
            continue
        entries = len(truth.outline) + len(truth.dropped)
        print(f"{spec.name}: {len(truth.pages)} pages, {len(truth.outline)} of {entries} outline entries printed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
