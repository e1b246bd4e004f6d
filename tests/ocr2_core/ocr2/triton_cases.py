"""The Triton kernel against the reference, run as a program (`python -m tests.ocr2_core.ocr2.triton_cases`).

With TRITON_INTERPRET=1 on the CPU, else on a CUDA device. Prints ‖Δ‖/‖ref‖ for each case and ends with 1 where one is
too large. With `--compile` it instead compiles the kernels for NVIDIA GPUs, which needs none; with `--decoder DIR` it
decodes with a small checkpoint in DIR, once through the kernel and once over gathered blocks.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ocr2_core.ocr2.sr_swa_attention import sr_swa_attention_reference
from ocr2_core.ocr2.triton_decode import sr_swa_attention_triton


@dataclass(frozen=True)
class Case:
    name: str
    batch: int = 2
    heads: int = 2
    key_heads: int = 2
    head_size: int = 32
    blocks: int = 40
    block_tokens: int = 16
    selected: int = 11
    kept: int = 9
    window: int = 128
    dtype: torch.dtype = torch.float32
    tolerance: float = 1e-5


CASES = (
    Case(
        "the checkpoint's geometry", batch=1, heads=10, key_heads=10, head_size=128, selected=64, blocks=120, kept=111
    ),
    Case("in bfloat16", head_size=128, selected=20, dtype=torch.bfloat16, tolerance=1e-2),
    Case("grouped queries", heads=4, key_heads=2),
    Case("a head size that is no power of two", head_size=24),
    Case("a window and kept columns beyond one tile", window=200, kept=300),
    Case("nothing selected", selected=0),
    Case("small blocks", block_tokens=4, selected=37),
    Case("one sequence, one block", batch=1, selected=1, blocks=2, kept=1, window=1),
)


def relative_error(case: Case, device: str) -> float:
    generator = torch.Generator().manual_seed(11)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device, case.dtype)

    def counts(low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high + 1, (case.batch,), generator=generator).to(device, torch.int32)

    slots = case.batch + 2
    pool = (case.key_heads, case.blocks, case.block_tokens, case.head_size)
    # the layer of a pool, and columns of one buffer: both strided, as the decoder has them
    keys, values = (random(2, *pool)[1] for _ in range(2))
    ring_and_kept = (slots, case.key_heads, case.window + case.kept + 5, case.head_size)
    buffers = [random(*ring_and_kept) for _ in range(2)]
    lengths = torch.full((case.blocks,), case.block_tokens, dtype=torch.int32)
    lengths[1::3] = case.block_tokens - 1
    lengths[0] = 0
    # what no block holds must not be read, whatever stands there
    for tensor in (keys, values):
        tensor[:, 1::3, -1] = 1e4
        tensor[:, 0] = 1e4
    selected_counts = counts(0, case.selected)
    selected_counts[0] = case.selected
    table = torch.zeros(case.batch, case.selected, dtype=torch.int64)
    for row, count in enumerate(selected_counts.tolist()):
        table[row, :count] = 1 + torch.randperm(case.blocks - 1, generator=generator)[:count]
    kept_counts, ring_counts = counts(1, case.kept), counts(1, case.window)
    # a ring with one token is the first step; a full one every step past the window
    ring_counts[0] = case.window
    arguments = (
        random(case.batch, case.heads, case.head_size),
        keys,
        values,
        table.to(device),
        selected_counts,
        lengths.to(device),
        *(buffer[:, :, case.window : case.window + case.kept] for buffer in buffers),
        kept_counts,
        *(buffer[:, :, : case.window] for buffer in buffers),
        ring_counts,
        torch.randperm(slots, generator=generator)[: case.batch].to(device),
        case.head_size**-0.5,
    )
    expected = sr_swa_attention_reference(*arguments).float()
    got = sr_swa_attention_triton(*arguments).float()
    return float((got - expected).norm() / expected.norm())


def compile_kernels(capability: int) -> str:
    """Compile both kernels at the checkpoint's geometry; returns the sizes of the binaries."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from ocr2_core.ocr2 import triton_kernels

    sizes = {"HEADS": 10, "GROUP": 1, "HEAD_SIZE": 128, "BLOCK_TOKENS": 16, "SELECTED_TILES": 16, "KEPT_TILES": 2}
    sizes |= {"TILES": 20, "TILE": 64, "WIDTH": 128, "STEP": 16}
    types = dict.fromkeys(("selected_blocks", "slots"), "*i64") | {"scale": "fp32"}
    types |= dict.fromkeys(("selected_counts", "block_lengths", "kept_counts", "ring_counts"), "*i32")
    types |= dict.fromkeys(("tile_maxima", "tile_sums", "tile_values"), "*fp32") | {"outputs": "*bf16"}
    names = ("queries", "key_blocks", "value_blocks", "kept_keys", "kept_values", "ring_keys", "ring_values")
    types |= dict.fromkeys(names, "*bf16")
    binaries = []
    for kernel in (triton_kernels.attend_tile, triton_kernels.join_tiles):
        signature = {name: "constexpr" if name in sizes else types.get(name, "i32") for name in kernel.arg_names}
        constants = {name: value for name, value in sizes.items() if name in signature}
        # tensors and their strides are multiples of 16, as they are at this geometry
        aligned = [place for place, name in enumerate(kernel.arg_names) if signature[name] not in ("constexpr", "fp32")]
        source = ASTSource(kernel, signature, constants, {(place,): [["tt.divisibility", 16]] for place in aligned})
        binaries.append(triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"])
    return f"{[len(binary) for binary in binaries]} bytes"


def decoder_difference(folder: Path) -> float:
    """Largest difference of logits past the window and over a hand-over, ragged sequences selecting a few blocks."""
    from ocr2_core.ocr2.model import load_model
    from ocr2_core.ocr2.page_decoder import Boundary
    from ocr2_core.ocr2.selection import SelectionSettings
    from tests.ocr2_core.ocr2.conftest import make_decoder, random_pages

    model = load_model(folder)
    logits = []
    for kernel in (sr_swa_attention_triton, None):
        selection = SelectionSettings(page_budget=2, block_budget=36, refresh_steps=3)
        decoder = make_decoder(model, selection=selection, kernel=kernel)
        first, _ = decoder.open_sequence(random_pages(5), [7, 8])
        second, _ = decoder.open_sequence(random_pages(2, seed=3), [7, 8])
        for step in range(11):
            if step == 8:
                decoder.hand_over(first, [4], random_pages(3, first=5), Boundary.CARRY)
            rows = decoder.step({first: 10 + step, second: 40 + step})
            logits.append(torch.from_numpy(np.stack([rows[first], rows[second]])))
    half = len(logits) // 2
    return float((torch.stack(logits[:half]) - torch.stack(logits[half:])).abs().max())


def main() -> int:
    if "--decoder" in sys.argv:
        difference = decoder_difference(Path(sys.argv[-1]))
        sys.stdout.write(f"{'ok  ' if difference <= 1e-4 else 'FAIL'} decoder: {difference:.2e}\n")
        return int(difference > 1e-4)
    if "--compile" in sys.argv:
        sys.stdout.write(f"ok   sm_90: {compile_kernels(90)}\n")
        return 0
    device = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
    torch.set_num_threads(1)
    failures = 0
    for case in CASES:
        error = relative_error(case, device)
        is_right = error <= case.tolerance
        failures += not is_right
        sys.stdout.write(f"{'ok  ' if is_right else 'FAIL'} {case.name}: {error:.2e}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
