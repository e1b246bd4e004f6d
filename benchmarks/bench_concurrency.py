"""How many tokens a second do many documents make together, beside R-SWA without copies?

    python -m benchmarks.bench_concurrency [--documents 16] [--pages 100] [--rounds 5] [--quick]

The language model of `baidu/Unlimited-OCR` (12 layers, bfloat16, random weights), 16 documents of 100 pages in one
batch, one thread, CPU time of the process, steps of both variants taking turns. Documents share the storage of one
document's pages, each with the pages in an order of its own: 16 sets of pages would take 27 GB, and one is already far
beyond the CPU's caches. Each document selects for itself, so they read different blocks. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys

from benchmarks.ocr2_geometry import (
    BLOCKS_A_PAGE,
    AttentionClock,
    WholeStep,
    baseline_step,
    clock_on_decode_steps,
    cpu_seconds,
    decoder_of,
    median_ratio,
    noise_columns,
    one_thread,
    open_document,
    our_steps,
    read_past_the_window,
    real_model,
    reference_tokens,
)
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.model_decoder import ModelDecoder

REFRESH_STEPS = 4


def open_documents(model: SrSwaOcrModel, documents: int, pages: int) -> tuple[ModelDecoder, list[int]]:
    """A decoder with this many sequences over the same stored pages, in different orders and at different places."""
    decoder = decoder_of(model, pages + documents)
    first = open_document(decoder, pages)
    stored = [page.blocks for page in decoder._sequences[first].pages]
    sequences = [first]
    order = random.Random(3)
    for _ in range(documents - 1):
        sequence = open_document(decoder, 1, 0)
        state = decoder._sequences[sequence]
        page = state.pages[0]
        state.pages = [
            type(page)(index, page.layout, blocks, 1 + index * page.token_count, page.separator_column)
            for index, blocks in enumerate(order.sample(stored, pages))
        ]
        decoder.local.reserve(state.slot + 1, decoder.local.window + state.kept_count + pages, 64)
        state.kept_count += pages - 1  # the separators of the other pages, as columns
        state.current_page_index = order.randrange(pages)
        state.gather_due = state.select_due = True
        read_past_the_window(decoder, sequence)
        state.rebuild_table("cpu")
        sequences.append(sequence)
    assert all(decoder._sequences[number].block_count == pages * BLOCKS_A_PAGE for number in sequences)
    return decoder, sequences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=16)
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="3 rounds")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else arguments.rounds
    documents, pages = arguments.documents, arguments.pages
    one_thread()
    model = real_model()
    decoder, sequences = open_documents(model, documents, pages)
    clocks = {"rswa": AttentionClock(), "ours": AttentionClock()}
    whole = WholeStep(*noise_columns(model, documents, reference_tokens(pages)), clocks["rswa"])
    found: dict[str, list[float]] = {"rswa": [], "rswa_attention": [], "ours": [], "ours_attention": []}
    with clock_on_decode_steps(clocks["ours"]):
        for number in range(rounds + 1):
            for clock in clocks.values():
                clock.seconds = 0.0
            theirs = cpu_seconds(lambda: baseline_step(model, whole, documents, reference_tokens(pages)))
            cycle = cpu_seconds(lambda: our_steps(decoder, sequences, REFRESH_STEPS)) / REFRESH_STEPS
            if number:  # the first round warms up
                found["rswa"].append(theirs)
                found["rswa_attention"].append(clocks["rswa"].seconds)
                found["ours"].append(cycle)
                found["ours_attention"].append(clocks["ours"].seconds / REFRESH_STEPS)
    print(f"{documents} documents of {pages} pages, CPU ms a step (of which attention), medians of {rounds} rounds")
    for name in ("rswa", "ours"):
        step, attention = (statistics.median(found[key]) for key in (name, f"{name}_attention"))
        print(f"  {name:<6}{step * 1e3:>9.1f} ({attention * 1e3:.1f})  {documents / step:.2f} tokens/s")
    result = {
        f"tps_ratio_rswa_{documents}": median_ratio(found["rswa"], found["ours"]),
        f"attn_ratio_rswa_{documents}": median_ratio(found["rswa_attention"], found["ours_attention"]),
        "tokens_per_cpu_s_ours": documents / statistics.median(found["ours"]),
        "tokens_per_cpu_s_rswa": documents / statistics.median(found["rswa"]),
        "documents": documents,
        "pages": pages,
        "rounds": rounds,
    }
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


if __name__ == "__main__":
    sys.exit(main())
