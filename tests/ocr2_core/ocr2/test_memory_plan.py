"""The memory budget, against literal numbers and the real model class's parameters."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ocr2_core.errors import EngineError
from ocr2_core.ocr2.memory_plan import (
    MemoryPlan,
    PlanRequest,
    as_json,
    largest_concurrency,
    largest_group,
    make_plan,
    plan_lines,
    working_tokens,
)
from ocr2_core.ocr2.model_geometry import ModelGeometry


def plan(gigabytes: float = 24, **asked: object) -> MemoryPlan:
    return make_plan(PlanRequest(gpu_bytes=round(gigabytes * 1e9), **asked))  # type: ignore[arg-type]


def test_numbers_of_the_paper_preset_at_300_pages() -> None:
    paper = plan(preset="paper", page_count=300)
    assert paper.request.geometry.token_bytes == 61_440
    assert working_tokens(paper.request) == 28_799
    assert paper.kv_bytes == 1_769_410_560  # 1.77 GB
    assert paper.full_attention_bytes == 47_001_600_000  # 47.00 GB
    assert paper.full_attention_bytes / paper.kv_bytes > 26.5
    assert paper.index_bytes == 105 * 17 * 30_720


def test_numbers_of_the_v1_safe_preset() -> None:
    safe = plan(preset="v1-safe", page_count=300)
    assert safe.kv_bytes == (12 * 273 + 134) * 61_440
    assert safe.kv_bytes + safe.index_bytes <= 0.25e9


def test_a_document_shorter_than_a_group_keeps_only_its_pages() -> None:
    assert plan(preset="paper", page_count=10).kv_bytes == (10 * 273 + 134) * 61_440
    assert plan(preset="paper", page_count=105).kv_bytes == plan(preset="paper", page_count=5000).kv_bytes


def test_the_budget_adds_up() -> None:
    budget = plan(preset="paper", concurrency=4, margin=0.15)
    assert budget.weight_bytes == 2 * 3_335_504_128
    assert budget.pool_bytes == round(4 * (budget.kv_bytes + budget.index_bytes) / 0.8)
    counted = budget.weight_bytes + budget.activation_bytes + 4 * budget.step_bytes + budget.pool_bytes
    assert budget.margin_bytes == round(0.15 * counted)
    assert budget.total_bytes == counted + budget.margin_bytes
    assert replace(budget, request=replace(budget.request, gpu_bytes=budget.total_bytes)).is_fitting
    assert not replace(budget, request=replace(budget.request, gpu_bytes=budget.total_bytes - 1)).is_fitting


def test_without_a_kernel_the_selected_blocks_are_copied_for_each_document() -> None:
    assert plan(has_kernel=False).step_bytes - plan().step_bytes == 64 * 16 * 61_440


@pytest.mark.parametrize("gigabytes", [12.0, 16.0, 24.0, 48.0, 80.0])
@pytest.mark.parametrize("preset", ["paper", "v1-safe"])
def test_largest_sizes_fit_and_one_more_does_not(gigabytes: float, preset: str) -> None:
    request = PlanRequest(gpu_bytes=round(gigabytes * 1e9), preset=preset, concurrency=2)
    most = largest_concurrency(request)
    assert most == 0 or make_plan(replace(request, concurrency=most)).is_fitting
    assert not make_plan(replace(request, concurrency=most + 1)).is_fitting
    pages = largest_group(request)
    assert pages == 0 or make_plan(replace(request, page_chunk_size=pages)).is_fitting
    assert pages == 300 or not make_plan(replace(request, page_chunk_size=pages + 1)).is_fitting


def test_more_memory_never_fits_less() -> None:
    sizes = [largest_concurrency(PlanRequest(gpu_bytes=size * 10**9, preset="paper")) for size in range(8, 90, 4)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
    assert sizes[-1] > 16


def test_too_small_a_gpu_is_said() -> None:
    lines = plan_lines(plan(6))
    assert any("does not fit in 6.00 GB" in line for line in lines)
    assert "Not even one document fits with groups of 12 pages." in lines
    assert "No group size fits 16 documents at a time." in lines


def test_json_holds_the_whole_answer() -> None:
    answer = as_json(plan(24, preset="paper", concurrency=2))
    assert json.loads(json.dumps(answer)) == answer
    assert answer["bytes"]["kv_a_document"] == 1_769_410_560
    assert answer["asked"]["group_pages"] == 105
    assert answer["fits"] is True


def test_parameters_are_those_of_the_model_class(tmp_path: Path) -> None:
    import torch
    from transformers import UnlimitedOcrConfig, UnlimitedOcrForConditionalGeneration

    small = UnlimitedOcrConfig(
        vision_config={
            "sam_config": {
                "hidden_size": 48,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "image_size": 256,
                "mlp_dim": 96,
                "window_size": 4,
                "global_attn_indexes": [1],
                "output_channels": 24,
                "downsample_channels": [32, 40],
            },
            "encoder_config": {
                "hidden_size": 40,
                "intermediate_size": 80,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": 56,
            },
        },
        text_config={
            "vocab_size": 300,
            "hidden_size": 64,
            "intermediate_size": 112,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "sliding_window": 32,
        },
        dtype="float32",
    )
    for config in (UnlimitedOcrConfig(), small):
        config.save_pretrained(tmp_path)
        geometry = ModelGeometry.from_checkpoint(tmp_path)
        with torch.device("meta"):
            model = UnlimitedOcrForConditionalGeneration(config)
        assert geometry.parameter_count == sum(weight.numel() for weight in model.parameters())
    assert geometry.token_bytes == 2 * 3 * 2 * 16 * 4
    assert geometry.text.window_tokens == 32
    assert geometry.page_tokens == 4 * 5 + 1


def test_weights_are_measured_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "unlimited_ocr", "torch_dtype": "bfloat16"}')
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"x" * 1000)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"x" * 24)
    geometry = ModelGeometry.from_checkpoint(tmp_path)
    assert geometry.weight_bytes == 1024
    assert plan(geometry=geometry).weight_bytes == 1024
    assert geometry.text == ModelGeometry().text


@pytest.mark.parametrize(
    "text", ["{", '{"model_type": "llama"}', "{}", '{"model_type": "unlimited_ocr", "dtype": "q4"}']
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(EngineError, match=r"config\.json does not describe an Unlimited-OCR checkpoint"):
        ModelGeometry.from_checkpoint(tmp_path)


def test_wrong_numbers_are_refused() -> None:
    for asked in ({"page_count": 0}, {"concurrency": 0}, {"margin": 1.0}, {"preset": "v9"}, {"page_chunk_size": -1}):
        with pytest.raises(EngineError):
            plan(24, **asked)


def test_planning_loads_no_torch() -> None:
    code = "import sys, ocr2_core.ocr2.memory_plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
