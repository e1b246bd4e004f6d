"""How much KV memory does a document of 300 pages hold, at most, at any moment?

    python -m benchmarks.bench_kv_memory [--pages 300] [--tokens-a-page 1] [--quick]

Keys and values of the real geometry (12 layers × 10 heads × 128, bfloat16: 61,440 bytes a token) in the decoder's own
pool; the rest of the model is small, for its size changes nothing here. A document is read from its first page to its
last in page groups; memory is counted from storage at every decode step, at every allocation and after every hand-over.

`full` is full attention, which keeps every page's 273 visual and 2,277 text tokens: bytes a token are measured on
transformers' full-attention cache at two small sizes, and multiplied. GB are 10⁹ bytes. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

import torch
from transformers import DynamicCache

from benchmarks.ocr2_geometry import (
    KEPT_AROUND,
    PAGE_TOKENS,
    PROMPT,
    WINDOW,
    decoder_of,
    full_tokens,
    noise_columns,
    noise_for_prefill,
    one_thread,
    pages_of,
    read_past_the_window,
    real_model,
)
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.page_decoder import Boundary
from ocr2_core.ocr2.page_groups import Grouping

GB = 1e9
SMALL = {
    "vocab_size": 512,
    "intermediate_size": 256,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 64,
}


def bytes_a_token_measured(model: SrSwaOcrModel) -> int:
    """Storage of transformers' full-attention cache at two sizes; the same bytes a token at both, or it is an error."""
    text = model.text_config
    found = set()
    for token_count in (256, 1024):
        keys, values = noise_columns(model, 1, token_count)
        cache = DynamicCache()
        for layer in range(text.num_hidden_layers):
            cache.update(keys.clone(), values.clone(), layer)
        storage = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
        found.add(storage / token_count)
    if len(found) != 1:
        raise SystemExit(f"bytes a token are not constant: {found}")
    return int(found.pop())


def peak_bytes(
    model: SrSwaOcrModel,
    preset: str,
    page_count: int,
    boundary: Boundary,
    stepped_pages: range,
    tokens_a_page: int,
) -> tuple[int, int, int]:
    """Peak bytes of KV and of the index over a whole document, and the number of hand-overs. `tokens_a_page` decode
    steps are made on each of `stepped_pages`."""
    grouping = Grouping.of_preset(preset)
    group = min(grouping.page_chunk_size, page_count)
    decoder = decoder_of(model, group)
    peak_kv = peak_index = 0

    def count() -> None:
        nonlocal peak_kv, peak_index
        usage = decoder.usage()
        peak_kv, peak_index = max(peak_kv, usage.kv_bytes), max(peak_index, usage.index_bytes)

    decoder.pool.allocate = counted(decoder.pool.allocate, count)  # type: ignore[method-assign]
    hand_overs = 0
    with noise_for_prefill():
        sequence, _ = decoder.open_sequence(pages_of(model, 0, group), PROMPT)
        read_past_the_window(decoder, sequence)
        first, end = 0, group
        while True:
            for page_index in range(first, end):
                decoder.set_current_page(sequence, page_index)
                for _ in range(tokens_a_page if page_index in stepped_pages else 0):
                    decoder.step({sequence: 20})
                    count()
            if end == page_count:
                break
            kept = list(range(end - grouping.chunk_overlap, end))
            first, end = end, min(end + grouping.stride, page_count)
            if boundary is Boundary.CARRY:
                decoder.hand_over(sequence, kept, pages_of(model, first, end), boundary)
            else:
                decoder.hand_over(sequence, [], pages_of(model, kept[0], end), boundary)
            hand_overs += 1
            count()
    decoder.close_sequence(sequence)
    if decoder.usage().kv_bytes:
        raise SystemExit("blocks are left after the document was closed")
    return peak_kv, peak_index, hand_overs


def counted(call: Callable[..., list[int]], count: Callable[[], None]) -> Callable[..., list[int]]:
    def run(*arguments: object) -> list[int]:
        blocks = call(*arguments)
        count()
        return blocks

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--tokens-a-page", type=int, default=1, help="decode steps a page, beyond the first window")
    parser.add_argument("--quick", action="store_true", help="a step on every tenth page, carry only")
    arguments = parser.parse_args()
    one_thread()
    model = real_model(**SMALL)
    pages = arguments.pages
    stepped_pages = range(0, pages, 10) if arguments.quick else range(pages)
    token_bytes = bytes_a_token_measured(model)
    full = full_tokens(pages) * token_bytes
    print(f"full attention: {token_bytes:,} bytes a token measured; {pages} pages hold {full / GB:.2f} GB")
    result: dict[str, float] = {f"kv_gb_full_{pages}": full / GB, "kv_bytes_a_token": token_bytes}
    for preset in ("paper", "v1-safe"):
        group = min(Grouping.of_preset(preset).page_chunk_size, pages)
        bound = (group * PAGE_TOKENS + KEPT_AROUND + WINDOW) * token_bytes
        for boundary in [Boundary.CARRY] if arguments.quick else [Boundary.CARRY, Boundary.RESTART]:
            kv, index, hand_overs = peak_bytes(model, preset, pages, boundary, stepped_pages, arguments.tokens_a_page)
            print(
                f"{preset:<8} {boundary:<8} {hand_overs:>3} hand-overs: peak KV {kv / GB:.4f} GB "
                f"(bound {bound / GB:.4f}), index {index / GB:.4f} GB"
            )
            if kv > bound:
                raise SystemExit("the peak is above the bound")
            key = f"kv_gb_ours_{pages}" if preset == "paper" else f"kv_gb_v1_safe_{pages}"
            result[key] = max(result.get(key, 0.0), kv / GB)
            result[f"{key}_index"] = max(result.get(f"{key}_index", 0.0), index / GB)
    result[f"kv_ratio_{pages}"] = result[f"kv_gb_full_{pages}"] / result[f"kv_gb_ours_{pages}"]
    print(json.dumps({name: round(value, 4) for name, value in result.items()}))


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
