"""What does a decode step cost, and what does its attention, beside the ways without SR-SWA?

    python -m benchmarks.bench_decode_step [--pages 100] [--rounds 7] [--quick]

The language model of `baidu/Unlimited-OCR` (12 layers, bfloat16, random weights), one document, one thread, CPU time of
the process. All variants take turns within a round; ratios are medians over rounds of neighbouring runs. SR-SWA runs
cycles of R = 4 steps (one selects, three reuse), everything included: gate, gathering, rings, tables.

Baselines:
`full`: full attention at the end of the document, over all visual and text tokens, keys in place.
`rswa`: reference sliding-window attention over all pages, keys in place, nothing copied.
`hf_default`: the same model with transformers' own cache, which copies all pages' keys each step and layer.

`step_300_over_32`: the same SR-SWA step with 300 pages in the cache at once over one with 32 (in use, page groups keep
fewer). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

from benchmarks.ocr2_geometry import (
    AttentionClock,
    WholeStep,
    baseline_step,
    clock_on_decode_steps,
    cpu_seconds,
    decoder_of,
    full_tokens,
    median_ratio,
    noise_columns,
    one_thread,
    open_document,
    our_steps,
    real_model,
    reference_tokens,
    transformers_cache,
    transformers_step,
)
from ocr2_core.ocr2.model import SrSwaOcrModel

REFRESH_STEPS = 4


def measure_at(model: SrSwaOcrModel, pages: int, rounds: int) -> dict[str, list[float]]:
    """CPU seconds a step of each variant, and of its attention, a number a round."""
    decoder = decoder_of(model, pages)
    sequence = open_document(decoder, pages)
    clocks = {name: AttentionClock() for name in ("full", "rswa", "ours")}
    steps = {
        "full": WholeStep(*noise_columns(model, 1, full_tokens(pages)), clocks["full"]),
        "rswa": WholeStep(*noise_columns(model, 1, reference_tokens(pages)), clocks["rswa"]),
    }
    cache = transformers_cache(model, pages)
    position = reference_tokens(pages)

    found: dict[str, list[float]] = {}
    with clock_on_decode_steps(clocks["ours"]):
        for number in range(rounds + 1):
            times: dict[str, float] = {}
            for name, step in steps.items():
                clocks[name].seconds = 0.0
                times[f"{name}_step"] = cpu_seconds(lambda step=step: baseline_step(model, step, 1, position))  # type: ignore[misc]
                times[f"{name}_attention"] = clocks[name].seconds
            times["hf_default_step"] = cpu_seconds(lambda: transformers_step(model, cache, position))
            clocks["ours"].seconds = 0.0
            times["ours_step"] = cpu_seconds(lambda: our_steps(decoder, [sequence], REFRESH_STEPS)) / REFRESH_STEPS
            times["ours_attention"] = clocks["ours"].seconds / REFRESH_STEPS
            if number:  # the first round warms up
                for name, seconds in times.items():
                    found.setdefault(name, []).append(seconds)
    return found


def long_over_short(model: SrSwaOcrModel, rounds: int) -> float:
    """An SR-SWA step with 300 pages in the cache over one with 32."""
    decoder = decoder_of(model, 332)
    sequences = [open_document(decoder, pages) for pages in (300, 32)]
    times: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for sequence, seconds in zip(sequences, times, strict=True):
            cycle = cpu_seconds(lambda sequence=sequence: our_steps(decoder, [sequence], REFRESH_STEPS))  # type: ignore[misc]
            if number:
                seconds.append(cycle)
    return median_ratio(*times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="3 rounds")
    parser.add_argument("--skip-300", action="store_true", help="leave out the document of 300 pages (5 GB)")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else arguments.rounds
    one_thread()
    model = real_model()
    pages = arguments.pages
    found = measure_at(model, pages, rounds)
    print(f"{pages} pages, one document, CPU ms a step (of which attention), medians of {rounds} rounds")
    for name in ("full", "rswa", "hf_default", "ours"):
        step = statistics.median(found[f"{name}_step"]) * 1e3
        attention = found.get(f"{name}_attention")
        inner = f" ({statistics.median(attention) * 1e3:.1f})" if attention else ""
        print(f"  {name:<12}{step:>9.1f}{inner}")
    result = {
        f"attn_ratio_full_{pages}": median_ratio(found["full_attention"], found["ours_attention"]),
        f"attn_ratio_rswa_{pages}": median_ratio(found["rswa_attention"], found["ours_attention"]),
        f"step_ratio_full_{pages}": median_ratio(found["full_step"], found["ours_step"]),
        f"step_ratio_rswa_{pages}": median_ratio(found["rswa_step"], found["ours_step"]),
        f"step_ratio_hf_default_{pages}": median_ratio(found["hf_default_step"], found["ours_step"]),
        "step_ms_ours": statistics.median(found["ours_step"]) * 1e3,
        "attention_ms_ours": statistics.median(found["ours_attention"]) * 1e3,
        "rounds": rounds,
    }
    if not arguments.skip_300:
        result["step_300_over_32"] = long_over_short(model, max(rounds, 5))
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


if __name__ == "__main__":
    sys.exit(main())
