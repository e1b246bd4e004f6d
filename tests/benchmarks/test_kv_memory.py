"""The KV benchmark counts what the geometry says, on a document that is short but handed over."""

from __future__ import annotations

import pytest
import torch

from benchmarks.bench_kv_memory import SMALL, bytes_a_token_measured, peak_bytes
from benchmarks.ocr2_geometry import median_ratio, real_model
from ocr2_core.ocr2.page_decoder import Boundary


def test_peak_is_the_bound_of_one_group_whatever_the_boundary() -> None:
    torch.set_num_threads(1)
    with torch.inference_mode():
        model = real_model(**SMALL, num_hidden_layers=2)
        token_bytes = bytes_a_token_measured(model)
        assert token_bytes == 2 * 2 * 10 * 128 * 2
        for boundary in Boundary:
            kv, index, hand_overs = peak_bytes(model, "v1-safe", 14, boundary, range(0, 14, 6), 1)
            assert hand_overs == 1
            assert kv == (12 * 273 + 1 + 5 + 128) * token_bytes
            assert index == 12 * 17 * token_bytes // 2


def test_ratio_is_the_median_of_pairs() -> None:
    assert median_ratio([2.0, 9.0, 4.0], [1.0, 1.0, 1.0]) == 4.0
    assert median_ratio([2.0, 3.0], [1.0, 1.0]) == pytest.approx(2.5)
