"""What `bench_long_documents` counts, and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import bench_long_documents as bench
from ocr2_core.nano.architecture import new_model
from ocr2_core.nano.checkpoint import configuration, export
from ocr2_core.nano.pages import draw_document
from ocr2_core.nano.vocabulary import decode, page_text, write_page


def test_the_words_of_a_page_as_written_are_its_truth() -> None:
    for page in draw_document(3, 8, split="test"):
        assert bench.plain_text(decode(write_page(page).token_ids)) == page_text(page)


def test_a_page_nearer_to_anothers_truth_is_wrong() -> None:
    truth = ["open the red valve", "close the blue door", "turn the green key"]
    assert bench.wrong_pages(truth, truth) == 0
    assert bench.wrong_pages(truth, ["open the red valvo", "", "turn the green kay"]) == 0
    # the second page read twice, all later ones one behind
    assert bench.wrong_pages(truth, [truth[0], truth[0], truth[1]]) == 2


def test_distinct_35_falls_when_a_page_is_written_twice() -> None:
    pages = ["a page of forty characters is long enough", "another page with quite different contents"]
    assert bench.distinct(pages) == 1.0
    # 41 characters twice: 49 runs, the 7 of one page among them twice
    assert bench.distinct([pages[0], pages[0]]) == 42 / 49


def test_a_reduced_plan_compares_all_attentions_and_boundaries() -> None:
    names = {variant.name for variant, _ in bench.plan(is_full=False)}
    assert {"full one group", "r-swa carry G=8", "sr-swa free restart G=8", "sr-swa trained recompute G=8"} <= names
    assert max(size for _, size in bench.plan(is_full=True)) == 300


def test_an_untrained_model_is_measured_as_one_that_cannot_read(tmp_path: Path) -> None:
    export(new_model(configuration(), 1).state_dict(), tmp_path, torch.float32)
    runner = bench.Bench(tmp_path)
    bench_sizes = {2: 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "_COPIES", bench_sizes)
        patch.setattr(bench, "MAX_PAGE_TOKENS", 40)
        row = runner.read(bench.Variant("sr-swa free", 2), 2)
    assert (row.pages, row.documents) == (2, 1)
    assert row.cer > 0.8
    assert row.kv_bytes > 0
    assert json.loads(json.dumps(bench.asdict(row)))["variant"] == "sr-swa free restart G=2"
