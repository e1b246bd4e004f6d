"""The Triton kernel: its logic in Triton's interpreter, its code through the compiler, itself on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from ocr2_core.ocr2.errors import DecoderError
from ocr2_core.ocr2.triton_decode import kernel_for, sr_swa_attention_triton
from tests.ocr2_core.ocr2.conftest import save_checkpoint, small_config
from tests.ocr2_core.ocr2.triton_cases import CASES, relative_error

ROOT = Path(__file__).resolve().parents[3]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed (extra `gpu`)")


def run_cases(tmp_path: Path, *arguments: str, **environment: str) -> str:
    """In a process of its own, because triton reads its environment when it is first imported."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.ocr2_core.ocr2.triton_cases", *arguments],
        cwd=ROOT,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_triton
def test_kernel_equals_the_reference_in_the_interpreter(tmp_path: Path) -> None:
    assert run_cases(tmp_path, TRITON_INTERPRET="1").count("ok   ") == len(CASES)


@needs_triton
def test_decoder_runs_through_the_kernel(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "checkpoint", small_config(window=6, layers=2, heads=2, key_heads=2))
    assert run_cases(tmp_path, "--decoder", str(folder), TRITON_INTERPRET="1").startswith("ok   decoder")


@needs_triton
def test_kernels_compile_for_gpus(tmp_path: Path) -> None:
    assert run_cases(tmp_path, "--compile").startswith("ok   sm_90")


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_equals_the_reference_on_a_gpu(case: object) -> None:
    assert relative_error(case, "cuda") <= case.tolerance  # type: ignore[arg-type, attr-defined]


def test_kernel_is_chosen_only_where_it_runs() -> None:
    assert kernel_for("cpu") is None
    assert kernel_for(torch.device("cpu")) is None
    assert (kernel_for("cuda:0") is None) == (find_spec("triton") is None)


def test_on_a_cpu_the_kernel_says_that_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    nothing = torch.zeros(1, 1, 1, 8)
    counts = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(DecoderError, match="runs on CUDA devices, not on cpu"):
        sr_swa_attention_triton(
            nothing[0], nothing, nothing, counts[None].long(), counts, counts, nothing, nothing, counts,
            nothing, nothing, counts, counts.long(), 1.0,
        )  # fmt: skip
