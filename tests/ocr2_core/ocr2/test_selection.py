from pathlib import Path

import pytest
import torch

from ocr2_core.ocr2.errors import GateFileError
from ocr2_core.ocr2.gates import GATE_FILE, load_gates, save_gates
from ocr2_core.ocr2.page_gate import block_scores, gate_pages, page_scores, summary_logits
from ocr2_core.ocr2.token_selector import select_blocks


def test_logits_are_scaled_dot_products_with_the_heads_own_key_head() -> None:
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    summaries = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert summary_logits(queries, summaries, 0.5).tolist() == [[0.5], [1.0], [3.0], [4.0]]


def test_block_scores_add_each_heads_softmax_over_the_candidates() -> None:
    logits = torch.tensor([[[0.0, 0.0, 50.0], [0.0, 1.0, 50.0]]])
    scores = block_scores(logits, torch.tensor([[True, True, False]]))
    torch.testing.assert_close(scores, torch.tensor([[0.5 + 0.268941, 0.5 + 0.731059, 0.0]]))


def test_a_page_is_as_good_as_its_best_block() -> None:
    scores = torch.tensor([[0.1, 0.7, 0.3, 0.3, 0.3, 0.0]])
    torch.testing.assert_close(
        page_scores(scores, torch.tensor([[0, 0, 1, 1, 1, 0]]), 3), torch.tensor([[0.7, 0.3, 0.0]])
    )


def test_the_gate_keeps_the_page_being_read_its_neighbours_and_the_best_others() -> None:
    scores = torch.tensor([[0.9, 0.0, 0.0, 0.0, 0.5, 0.6, 0.1], [0.1, 0.2, 0.3, 0.9, 0.0, 0.0, 0.0]])
    kept = gate_pages(scores, torch.tensor([7, 4]), torch.tensor([2, 0]), 2)
    assert kept.tolist() == [
        [True, True, True, True, False, True, False],
        [True, True, True, True, False, False, False],
    ]


def test_the_selector_takes_current_then_next_then_the_best_of_the_gated_pages() -> None:
    scores = torch.tensor([[0.0, 0.0, 0.1, 0.2, 0.9, 0.3]])
    valid = torch.ones(1, 6, dtype=torch.bool)
    current = torch.tensor([[True, False, False, False, False, False]])
    following = torch.tensor([[False, True, False, False, False, False]])
    gated = torch.tensor([[True, True, True, True, False, True]])

    def chosen(count: int) -> list[int]:
        return sorted(select_blocks(scores, valid, gated, current, following, count)[0].tolist())

    assert chosen(1) == [0]
    assert chosen(2) == [0, 1]
    assert chosen(3) == [0, 1, 5]
    assert chosen(4) == [0, 1, 3, 5]
    assert chosen(6) == [0, 1, 2, 3, 4, 5]
    # the count is fixed: blocks of other pages fill up, padding never does
    gated = torch.tensor([[True, True, False, False, False, False]])
    valid = torch.tensor([[True, True, True, True, True, False]])
    assert chosen(3) == [0, 1, 4]


def test_tiny_scores_still_rank_within_gated_pages() -> None:
    scores = torch.tensor([[1e-9, 3e-9, 2e-9, 9.0]])
    none = torch.zeros(1, 4, dtype=torch.bool)
    gated = torch.tensor([[True, True, True, False]])
    assert select_blocks(scores, ~none, gated, none, none, 2).tolist() == [[1, 2]]


def gate_tensors(layers: int = 2, heads: int = 4, key_heads: int = 2, size: int = 8) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        f"layers.{layer}.{gate}.{part}_proj": torch.randn(count, size, 3, generator=generator)
        for layer in range(layers)
        for gate in ("page_gate", "token_selector")
        for part, count in (("query", heads), ("key", key_heads))
    }


GEOMETRY = {"layers": 2, "heads": 4, "key_heads": 2, "head_size": 8}


def test_no_gate_file_means_parameter_free_gates(tmp_path: Path) -> None:
    assert load_gates(tmp_path, **GEOMETRY) is None


def test_a_trained_gate_scores_projected_queries_against_projected_summaries(tmp_path: Path) -> None:
    tensors = gate_tensors()
    save_gates(tmp_path, tensors)
    gates = load_gates(tmp_path, **GEOMETRY)
    assert gates is not None
    queries, mean_keys = torch.randn(4, 8), torch.randn(5, 2, 8)
    projected = torch.einsum("hd,hde->he", queries, gates.page_gate[1])
    for head in range(4):
        query = queries[head] @ tensors["layers.1.page_gate.query_proj"][head]
        keys = mean_keys[:, head // 2] @ tensors["layers.1.page_gate.key_proj"][head // 2]
        expected = keys @ query / 3**0.5
        torch.testing.assert_close(summary_logits(projected, mean_keys, 8**-0.5)[head], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("layers.1.token_selector.key_proj"), "missing layers.1.token_selector.key_proj"),
        (lambda t: t.update({"layers.2.page_gate.key_proj": torch.zeros(2, 8, 3)}), "unknown layers.2.page_gate"),
        (lambda t: t.update({"layers.0.page_gate.key_proj": torch.zeros(4, 8, 3)}), "expected \\(2, 8, gate size\\)"),
        (lambda t: t.update({"layers.0.page_gate.key_proj": torch.zeros(2, 8, 4)}), "queries to 3 and keys to 4"),
        (lambda t: t["layers.0.page_gate.key_proj"].fill_(float("nan")), "not finite"),
    ],
)
def test_a_partial_or_misshaped_gate_file_is_refused(tmp_path: Path, change: object, message: str) -> None:
    tensors = gate_tensors()
    change(tensors)  # type: ignore[operator]
    save_gates(tmp_path, tensors)
    with pytest.raises(GateFileError, match=message):
        load_gates(tmp_path, **GEOMETRY)


def test_a_damaged_gate_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / GATE_FILE).write_bytes(b"not safetensors")
    with pytest.raises(GateFileError, match="cannot be read"):
        load_gates(tmp_path, **GEOMETRY)
