"""How well and how fast is the structure of real manuals recovered?

    python -m benchmarks.bench_structure CORPUS [--profile office200] [--pages 10-21] [--only NAME] [--born]
        [--pymupdf4llm scan|born]

CORPUS holds one folder a manual with `truth.json`, `scanned.<profile>.pdf`, `born.pdf` (`benchmarks/corpus` makes it).
Pages are read once with the CPU engine and kept beside the scan as `pages.<profile>.jsonl`; `--born` reads the text
layer of the original instead (`pages.born.jsonl`): what is lost then, structure recovery loses by itself. `--pages`
takes a range out of each manual, as for a comparison with slower tools.

Beside it stand the peers of `structure_peers`: numbers alone, the layout detector's titles, and, where asked for,
pymupdf4llm on the scan or on the original with its text layer.

Scores (`benchmarks/corpus/score.py`): heading F1, level accuracy (after the best common shift), tree score, reading
order. Speed: the manuals' pages one after the other, repeated to 100 and 1,000 pages, CPU seconds without reading.
Prints a table, then one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.corpus.score import score
from benchmarks.structure_peers import BLOCK_PEERS, pymupdf4llm
from ocr2_core.blocks import PageBlocks
from ocr2_core.ledger import PageResult
from structure_recovery.recover import RecoveredDocument, recover

_MEASURES = ("h_f1", "level_acc", "tree", "order")


def read_pages(folder: Path, profile: str, *, is_born: bool) -> list[PageBlocks]:
    """All pages of a manual, from the cache beside it or read now."""
    cache = folder / f"pages.{'born' if is_born else profile}.jsonl"
    if not cache.exists():
        from ocr2_core.engines import create_engine
        from ocr2_core.reading import ReadingOptions, read_document

        pdf = folder / ("born.pdf" if is_born else f"scanned.{profile}.pdf")
        engine = create_engine("rapidocr")
        text_layer = create_engine("text_layer") if is_born else None
        options = ReadingOptions(ocr="auto" if is_born else "always")
        results = list(read_document(pdf, engine, options=options, text_layer_engine=text_layer))
        cache.write_text("".join(result.model_dump_json() + "\n" for result in results), encoding="utf-8")
    lines = cache.read_text(encoding="utf-8").splitlines()
    pages = [PageResult.model_validate_json(line).page for line in lines]
    return sorted(pages, key=lambda page: page.page_index)


def prediction_of(recovered: RecoveredDocument, pages: list[PageBlocks]) -> dict[str, Any]:
    """The document as the scorer wants it: headings, and each page's paragraphs in reading order."""
    from docling_core.types.doc import ContentLayer, SectionHeaderItem, TableItem, TextItem

    paragraphs: dict[int, list[str]] = defaultdict(list)
    headings = []
    document = recovered.document
    for item, _ in document.iterate_items(included_content_layers={ContentLayer.BODY, ContentLayer.FURNITURE}):
        if isinstance(item, SectionHeaderItem):
            headings.append({"level": item.level, "title": item.text, "page": item.prov[0].page_no})
        if isinstance(item, TextItem) and item.content_layer is ContentLayer.BODY:
            for place in item.prov:
                paragraphs[place.page_no].append(item.text[slice(*place.charspan)])
        elif isinstance(item, TableItem):
            # the printed contents, too, are on their page, though not in the body
            rows = " ".join(cell.text for cell in item.data.table_cells)
            paragraphs[item.prov[0].page_no].append(rows)
    return {
        "pages": [
            {
                "n": page.page_number,
                "text": "\n".join(paragraphs[page.page_number]),
                "paragraphs": paragraphs[page.page_number],
            }
            for page in pages
        ],
        "headings": headings,
    }


def measure_speed(pages: list[PageBlocks]) -> dict[str, float]:
    """CPU seconds for 100 and for 1,000 pages."""
    seconds = {}
    for count in (100, 1000):
        repeated = [pages[n % len(pages)].model_copy(update={"page_index": n}) for n in range(count)]
        start = time.process_time()
        recover(repeated, name="speed")
        seconds[f"cpu_s_{count}_pages"] = round(time.process_time() - start, 2)
    return seconds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--profile", default="office200")
    parser.add_argument("--pages", default="", help="first-last, 1-based")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--born", action="store_true", help="read the original's text layer, not the scan")
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--pymupdf4llm", choices=["scan", "born"], help="also read by it (slow on scans)")
    options = parser.parse_args(arguments)
    first, last = (int(part) for part in options.pages.split("-")) if options.pages else (1, sys.maxsize)

    results: dict[str, dict[str, Any]] = {}
    all_pages: list[PageBlocks] = []
    peers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    print(f"{'manual':18}{'pages':>6}{'gold':>6}{'F1':>7}{'level':>7}{'tree':>7}{'order':>7}{'conf.':>7}")
    for folder in sorted(path.parent for path in options.corpus.glob("*/truth.json")):
        if options.only and folder.name not in options.only:
            continue
        pages = read_pages(folder, options.profile, is_born=options.born)
        pages = [page for page in pages if first <= page.page_number <= last]
        all_pages += pages
        recovered = recover(pages, name=folder.name)
        truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        scores = score(truth, prediction_of(recovered, pages))
        results[folder.name] = {"pages": len(pages), "confidence": recovered.report.confidence, **scores}
        predictions = {name: read(pages) for name, read in BLOCK_PEERS.items()}
        if options.pymupdf4llm:
            pdf = folder / ("born.pdf" if options.pymupdf4llm == "born" else f"scanned.{options.profile}.pdf")
            predictions["pymupdf4llm"] = pymupdf4llm(pdf, [page.page_number for page in pages])
        for name, prediction in predictions.items():
            peers[name].append(score(truth, prediction))
        cells = "".join(f"{scores.get(measure) or 0.0:7.3f}" for measure in _MEASURES)
        confidence = recovered.report.confidence or 0.0
        print(f"{folder.name:18}{len(pages):6}{scores.get('gold') or 0:6}{cells}{confidence:7.2f}", flush=True)
    if not results:
        parser.error(f"no folder with a truth.json under {options.corpus}")
    means = _means(list(results.values()))
    print(f"{'mean':30}" + "".join(f"{means[measure]:7.3f}" for measure in _MEASURES))
    peer_means = {name: _means(scored) for name, scored in peers.items()}
    for name, row in peer_means.items():
        print(f"{'  ' + name:30}" + "".join(f"{row[measure]:7.3f}" for measure in _MEASURES))
    speed = {} if options.skip_speed else measure_speed(all_pages)
    if speed:
        print(", ".join(f"{name}: {value}" for name, value in speed.items()))
    print(json.dumps({"benchmark": "structure", "means": means, "peers": peer_means, **speed, "manuals": results}))
    return 0


def _means(scored: list[dict[str, Any]]) -> dict[str, float]:
    return {measure: round(statistics.mean(row.get(measure) or 0.0 for row in scored), 4) for measure in _MEASURES}


if __name__ == "__main__":
    sys.exit(main())
