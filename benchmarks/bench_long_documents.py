"""Does reading stay accurate to 300 pages, at a flat cache, with sparse attention?

    python -m benchmarks.bench_long_documents CHECKPOINT [--full] [--plots FOLDER]

A nano model (`ocr2_core/nano`) reads documents of unseen text. Attention: `full` (all text kept), `r-swa` (the whole
reference, a window of 128 output tokens), `sr-swa` with the parameter-free gates and with the trained ones (2 pages
besides the one being read and its neighbours, 27 blocks of 8 tokens: three pages' worth of a group). Page groups: none
(the whole document in the cache: beyond 8 pages more than nano was trained on), or G pages with one of three
hand-overs. Every page goes through the engine's own decoding, guards included, and re-reading the last page of a
carried group too.

CER is over the words of all pages (markup left out), coverage the share of pages that came out, `wrong` the pages whose
text is nearer to another page of the document than to their own, Distinct-35 the share of different runs of 35
characters relative to the truth's. Greedy decoding, fp32, one batch for all documents of a size. The last line is JSON.
"""

from __future__ import annotations

import argparse
import html
import itertools
import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist
from transformers import AutoTokenizer

from ocr2_core.ledger import PageStatus
from ocr2_core.nano.gate_training import BLOCK_TOKENS
from ocr2_core.nano.observed_model import pixels_of
from ocr2_core.nano.pages import NanoPage, draw_document
from ocr2_core.nano.vocabulary import page_text
from ocr2_core.ocr2.batching import ContinuousBatch
from ocr2_core.ocr2.guards import GuardSettings
from ocr2_core.ocr2.infinite_decoding import DecodingSettings, DocumentDecoding
from ocr2_core.ocr2.markup import parse_page
from ocr2_core.ocr2.model import SrSwaOcrModel, load_model
from ocr2_core.ocr2.model_decoder import DecoderSettings, ModelDecoder
from ocr2_core.ocr2.operations import PageReading, SourcePage
from ocr2_core.ocr2.page_decoder import Boundary, EncodedPage
from ocr2_core.ocr2.page_groups import Grouping
from ocr2_core.ocr2.page_model import PAGE_MARKER, TokenizerVocabulary
from ocr2_core.ocr2.selection import SelectionSettings

PAGE_BUDGET, BLOCK_BUDGET = 2, 27
# nano was trained on groups of up to so many pages
LARGEST_GROUP = 8
# three times the longest page
MAX_PAGE_TOKENS = 600
_NGRAM = 35
# more text than 50 pages hold
_FULL_WINDOW = 8192
# documents of one size, so that short ones are not a matter of luck
_COPIES = {1: 60, 5: 16, 20: 5, 50: 2, 100: 1, 300: 1}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of reading. `group_size` 0: the whole document in the cache."""

    attention: str
    group_size: int = 0
    boundary: str = "restart"

    @property
    def name(self) -> str:
        return self.attention + (f" {self.boundary} G={self.group_size}" if self.group_size else " one group")


@dataclass(frozen=True, slots=True)
class Result:
    """Shares are 0 to 1. `kv_bytes`: peak for one document where the size has one document only."""

    variant: str
    pages: int
    documents: int
    cer: float
    coverage: float
    wrong_pages: int
    distinct_35: float
    kv_bytes: int
    tokens: int
    steps_a_s: float
    tokens_a_s: float


class Bench:
    """The model with and without gates, and the encoded documents of each size."""

    def __init__(self, checkpoint: Path) -> None:
        self.model = load_model(checkpoint, dtype=torch.float32)
        self.gates = self.model.gates
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
        self._documents: dict[int, list[list[NanoPage]]] = {}
        self._encoded: dict[int, list[list[EncodedPage]]] = {}

    def documents(self, page_count: int) -> tuple[list[list[NanoPage]], list[list[EncodedPage]]]:
        """Documents of unseen text, and their visual tokens (the same for all variants)."""
        if page_count not in self._documents:
            copies = _COPIES.get(page_count, 1)
            drawn = [list(draw_document(1000 * page_count + n, page_count, split="test")) for n in range(copies)]
            self._documents[page_count] = drawn
            self._encoded[page_count] = [encode(self.model, pages) for pages in drawn]
        return self._documents[page_count], self._encoded[page_count]

    def read(self, variant: Variant, page_count: int) -> Result:
        """Read all documents of a size."""
        documents, encoded = self.documents(page_count)
        self.model.gates = self.gates if variant.attention == "sr-swa trained" else None
        window = self.model.text_config.sliding_window
        is_full = variant.attention == "full"
        self.model.text_config.sliding_window = _FULL_WINDOW if is_full else window
        try:
            readings, batch, seconds = self._decode(variant, encoded, page_count)
        finally:
            self.model.text_config.sliding_window = window
        report = batch.report
        kv_bytes = report.peak_kv_bytes // max(1, report.peak_running)
        if is_full:
            # the ring is allocated for the longest text: count what was written instead
            longest = max(sum(reading.token_count for reading in document) for document in readings)
            kv_bytes = kv_bytes - (_FULL_WINDOW - longest) * token_bytes(self.model)
        truth = [[page_text(page) for page in document] for document in documents]
        told = [[plain_text(reading.text) for reading in document] for document in readings]
        pairs = list(zip(itertools.chain(*truth), itertools.chain(*told), strict=True))
        errors = sum(Levenshtein.distance(true, read) for true, read in pairs)
        statuses = [reading.status for document in readings for reading in document]
        return Result(
            variant.name,
            page_count,
            len(documents),
            errors / sum(len(true) for true, _ in pairs),
            sum(status is not PageStatus.FAILED for status in statuses) / len(pairs),
            sum(map(wrong_pages, truth, told)),
            sum(map(distinct, told)) / sum(map(distinct, truth)),
            kv_bytes,
            report.token_count,
            report.step_count / max(report.step_s, 1e-9),
            report.token_count / seconds,
        )

    def _decode(
        self, variant: Variant, encoded: list[list[EncodedPage]], page_count: int
    ) -> tuple[list[list[PageReading]], ContinuousBatch, float]:
        group = variant.group_size or page_count
        settings = DecodingSettings(
            Grouping(group, 1 if group > 1 else 0),
            Boundary(variant.boundary),
            GuardSettings(max_page_tokens=MAX_PAGE_TOKENS),
        )
        blocks_a_page = -(-(encoded[0][0].token_count - 1) // BLOCK_TOKENS)
        sparse = variant.attention.startswith("sr-swa")
        decoder = ModelDecoder(
            self.model,
            DecoderSettings(
                pool_blocks=len(encoded) * (group + 2) * blocks_a_page,
                selection=SelectionSettings(PAGE_BUDGET, BLOCK_BUDGET if sparse else None),
                block_tokens=BLOCK_TOKENS,
            ),
            page_token_id=self.tokenizer.encode(PAGE_MARKER, add_special_tokens=False)[-1],
        )
        vocabulary = TokenizerVocabulary(self.tokenizer, decoder.stop_token_ids)
        batch = ContinuousBatch(decoder, max_concurrency=16, kv_cache_watermark=1.0)
        decodings = []
        for number, pages in enumerate(encoded):
            decoding = DocumentDecoding(vocabulary, settings, name=f"document {number + 1}")
            for page in pages:
                decoding.feed(SourcePage(page.page_index, page, lambda page=page: page))
            decoding.end()
            decodings.append(decoding)
            batch.add(decoding)
        started = time.process_time()
        while batch.run_once():
            pass
        seconds = time.process_time() - started
        return [decoding.take_results() for decoding in decodings], batch, seconds


@torch.no_grad()
def encode(model: SrSwaOcrModel, pages: Sequence[NanoPage]) -> list[EncodedPage]:
    """Visual tokens of a document's pages."""
    features = []
    for first in range(0, len(pages), 16):
        features.extend(model.get_image_features(pixels_of(pages[first : first + 16])).pooler_output)
    return [EncodedPage(index, len(tokens), tokens) for index, tokens in enumerate(features)]


def token_bytes(model: SrSwaOcrModel) -> int:
    """KV bytes of one token."""
    text = model.text_config
    return 2 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim * 4


def plain_text(markup: str) -> str:
    """The words of a page as `page_text` gives them: one block or table row a line."""
    lines: list[str] = []
    for block in parse_page(markup).blocks:
        if block.text.startswith("<table"):
            for row in re.findall(r"<tr>(.*?)</tr>", block.text):
                cells = re.findall(r"<td>(.*?)</td>", row)
                lines.append(" ".join(html.unescape(cell) for cell in cells))
        else:
            lines.append(block.text)
    return "\n".join(lines)


def wrong_pages(truth: Sequence[str], told: Sequence[str]) -> int:
    """Pages whose text is nearer to another page's truth than to their own: skipped, repeated or swapped ones."""
    nearest = cdist(told, truth, scorer=Levenshtein.normalized_distance)
    return sum(bool(row[number] > row.min() + 1e-9) for number, row in enumerate(nearest))


def distinct(pages: Sequence[str]) -> float:
    """Different runs of 35 characters over all runs."""
    text = "\n".join(pages)
    runs = [text[first : first + _NGRAM] for first in range(max(1, len(text) - _NGRAM + 1))]
    return len(set(runs)) / len(runs)


def plan(is_full: bool) -> Iterator[tuple[Variant, int]]:
    """What is read, in order."""
    attentions = ("full", "r-swa", "sr-swa free", "sr-swa trained")
    for attention, size in itertools.product(attentions, (1, 5, 20, 50) if is_full else (1, 5, 20)):
        yield Variant(attention), size
    for attention, size in itertools.product(attentions[1:], (20, 50, 100, 300) if is_full else (20, 50)):
        yield Variant(attention, LARGEST_GROUP), size
    sizes = (20, 300) if is_full else (20, 50)
    for attention, size in itertools.product(("r-swa", "sr-swa trained"), sizes):
        yield Variant(attention, LARGEST_GROUP, Boundary.CARRY.value), size
    for size in sizes:
        yield Variant("sr-swa trained", LARGEST_GROUP, Boundary.RECOMPUTE.value), size
        yield Variant("sr-swa trained", LARGEST_GROUP // 2), size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", type=Path, help="folder that ocr2_core.nano.train wrote")
    parser.add_argument("--full", action="store_true", help="documents of up to 300 pages")
    parser.add_argument("--only", nargs="+", help="variants whose name holds one of these")
    parser.add_argument("--sizes", help="pages of a document, such as 5,300")
    parser.add_argument("--plots", type=Path, help="folder for PNG plots")
    parser.add_argument("--results", type=Path, nargs="+", help="output of earlier runs, to be plotted too")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    sizes = [int(size) for size in arguments.sizes.split(",")] if arguments.sizes else None
    bench = Bench(arguments.checkpoint)
    results = []
    print(
        f"{'':34}{'pages':>6}{'CER %':>8}{'cover':>7}{'wrong':>6}{'dist35':>8}{'KV MB':>8}{'steps/s':>9}{'tokens/s':>9}"
    )
    for variant, size in plan(arguments.full):
        if (sizes and size not in sizes) or not any(part in variant.name for part in arguments.only or [""]):
            continue
        row = bench.read(variant, size)
        results.append(row)
        print(
            f"{row.variant:34}{row.pages:6}{row.cer * 100:8.2f}{row.coverage:7.3f}{row.wrong_pages:6}"
            f"{row.distinct_35:8.3f}{row.kv_bytes / 1e6:8.2f}{row.steps_a_s:9.0f}{row.tokens_a_s:9.0f}",
            flush=True,
        )
    if arguments.plots:
        from benchmarks.long_document_plots import draw

        earlier = [json.loads(path.read_text().splitlines()[-1]) for path in arguments.results or ()]
        draw([*(Result(**row) for rows in earlier for row in rows), *results], arguments.plots)
    print(json.dumps([asdict(row) for row in results]))


if __name__ == "__main__":
    sys.exit(main())
