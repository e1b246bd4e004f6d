"""Training: what sequences, masks, labels and targets say; losses fall; a stopped run goes on unchanged."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ocr2_core.errors import EngineError
from ocr2_core.nano import train
from ocr2_core.nano.architecture import TOKENS_A_SIDE, VISUAL_TOKENS, WINDOW_TOKENS, new_model
from ocr2_core.nano.characters import CharacterHeads, slot_labels
from ocr2_core.nano.checkpoint import configuration
from ocr2_core.nano.gate_training import BLOCK_TOKENS, GateTraining
from ocr2_core.nano.optimiser import learning_rate
from ocr2_core.nano.pages import Glyph, NanoBlock, NanoPage, draw_document
from ocr2_core.nano.prose import CHARACTERS
from ocr2_core.nano.reading_loss import Reader, page_targets
from ocr2_core.nano.sequences import SequenceBatch, build_batch
from ocr2_core.nano.vocabulary import GROUP_PROMPT, SINGLE_PROMPT, TOKENS, WrittenPage, decode, write_page
from ocr2_core.nano.window_attention import window_attention, window_mask
from ocr2_core.ocr2.gates import load_gates
from ocr2_core.ocr2.page_layout import page_layout


class Always(random.Random):
    """A random source that says `value` for shares, and the smallest or last of the rest."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value


def written(count: int, seed: int = 1) -> list[WrittenPage]:
    return [write_page(page) for page in draw_document(seed, count, split="train")]


def rows(batch: SequenceBatch, row: int = 0) -> list[tuple[str, str]]:
    """Pairs of an output token fed and the token that should follow it, from the prompt on."""
    start = batch.reference_count - 1
    pairs = zip(batch.token_ids[row, start:].tolist(), batch.labels[row, start:].tolist(), strict=True)
    return [(TOKENS[fed], TOKENS[next_id]) for fed, next_id in pairs if next_id >= 0]


def test_a_group_is_written_page_by_page_behind_its_prompt() -> None:
    pages = written(2)
    batch = build_batch([pages], Always(0.9))
    assert batch.reference_count == 1 + 2 * VISUAL_TOKENS + 1
    pairs = rows(batch)
    assert pairs[0] == (GROUP_PROMPT, "<PAGE>")
    said = "".join(following for _, following in pairs)
    assert said == f"<PAGE>{decode(pages[0].token_ids)}<PAGE>{decode(pages[1].token_ids)}<|end|>"
    fed = "".join(token for token, _ in pairs)
    assert fed == GROUP_PROMPT + said.removesuffix("<|end|>")


def test_one_page_may_be_asked_for_with_the_single_prompt() -> None:
    page = written(1)
    batch = build_batch([page], Always(0.9))
    assert rows(batch)[0] == (SINGLE_PROMPT, "<|det|>")
    assert "".join(following for _, following in rows(batch)) == decode(page[0].token_ids) + "<|end|>"


def test_what_a_carried_window_holds_costs_no_loss() -> None:
    pages = written(2)
    plain, carried = build_batch([pages], Always(0.9)), build_batch([pages], Always(0.1))
    assert carried.token_ids.shape[1] > plain.token_ids.shape[1]
    assert rows(carried)[1:] == rows(plain)[1:]
    more = carried.token_ids.shape[1] - plain.token_ids.shape[1]
    history = carried.token_ids[0, carried.reference_count : carried.reference_count + more].tolist()
    ends = [page.token_ids[-more:] for page in pages]
    assert tuple(history) in ends
    assert int((carried.labels >= 0).sum()) == int((plain.labels >= 0).sum())


def test_targets_are_the_visual_tokens_that_hold_the_next_token() -> None:
    side = TOKENS_A_SIDE
    page = WrittenPage((5, 9, 9), ((1.0, 1.0), (40.0, 100.0), (127.0, 127.0)))
    batch = build_batch([[page, page]], Always(0.9))
    first = batch.reference_count - 1
    inner = [0, 3 * (side + 1) + 1, 3 * (side + 1) + 3]
    expected = [-1, *inner, -1, *(VISUAL_TOKENS + place for place in inner), -1]
    assert batch.targets[0, first:].tolist() == expected
    assert batch.turns[0, first:].tolist() == [False, True, False, False, False, True, False, False, False]
    assert page_targets(batch)[0, first:].tolist() == [-1, 0, 0, 0, -1, 1, 1, 1, -1]


def test_the_mask_is_r_swa() -> None:
    batch = build_batch([written(4)], Always(0.9))
    mask, reference = batch.mask[0, 0], batch.reference_count
    assert mask.shape[0] > reference + WINDOW_TOKENS + 20
    query = reference + WINDOW_TOKENS + 10
    seen = mask[query].nonzero().flatten().tolist()
    assert seen == [*range(reference), *range(query - WINDOW_TOKENS + 1, query + 1)]
    assert mask[reference - 5].nonzero().flatten().tolist() == list(range(reference - 4))


@pytest.mark.parametrize(("reference_count", "output_count"), [(75, 150), (147, 512), (293, 700), (40, 1024)])
def test_attention_in_blocks_is_the_masked_square(reference_count: int, output_count: int) -> None:
    torch.manual_seed(0)
    count = reference_count + output_count
    query, key, value = (torch.randn(2, 2, count, 16, requires_grad=True) for _ in range(3))
    weight = torch.randn(2, 2, count, 16)
    found = window_attention(query, key, value, reference_count, 0.25)
    mask = window_mask(count, reference_count)[None, None]
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.25)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad((found * weight).sum(), (query, key, value)),
        torch.autograd.grad((wanted * weight).sum(), (query, key, value)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_slots_hold_the_characters_whose_centres_lie_in_them() -> None:
    glyphs = (Glyph("a", 10.0, 16.0), Glyph(" ", 18.0, 16.0), Glyph("B", 252.0, 240.0))
    page = NanoPage(torch.zeros(1).numpy(), (NanoBlock("text", (0, 0, 1, 1), "a B"),), (glyphs,))
    by_line, by_patch = slot_labels([page], 32), slot_labels([page], 8)
    assert by_line.shape == (1, 8, 32)
    assert by_patch.shape == (1, 32, 32)
    a, b = (CHARACTERS.index(character) + 1 for character in "aB")
    assert by_line.nonzero().tolist() == [[0, 0, 1], [0, 7, 31]]
    assert by_patch.nonzero().tolist() == [[0, 2, 1], [0, 30, 31]]
    assert [int(by_line[0, 0, 1]), int(by_line[0, 7, 31])] == [a, b]


def test_the_learning_rate_rises_and_falls() -> None:
    assert learning_rate(1.0, 0, 1000) == pytest.approx(0.01)
    assert learning_rate(1.0, 99, 1000) == pytest.approx(1.0)
    assert learning_rate(1.0, 550, 1000) == pytest.approx(0.525)
    assert learning_rate(1.0, 1000, 1000) == pytest.approx(0.05)
    assert learning_rate(1.0, 2000, 1000) == pytest.approx(0.05)


def test_losses_fall_on_one_batch() -> None:
    torch.manual_seed(0)
    model = new_model(configuration(), 3)
    reader = Reader(model, CharacterHeads(128, 256))
    pages = list(draw_document(1, 1, split="train"))
    batch = build_batch([[write_page(page) for page in pages]], random.Random(0))
    heads = ((f"heads.{name}", value) for name, value in reader.heads.named_parameters())
    optimisers = train.Optimisers([*model.named_parameters(), *heads])
    history = []
    for _ in range(12):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = reader.losses(pages, batch, 0.3)
        history.append(losses)
        optimisers.step(losses.total, 2e-3)
    assert float(history[-1].total.detach()) < 0.7 * float(history[0].total.detach())
    assert history[-1].writing < 0.8 * history[0].writing


def small_stages() -> tuple[train.Stage, ...]:
    seeing, reading, groups = (train.STAGES[number] for number in (0, 1, -1))
    return (
        replace(seeing, steps=2, pages=2, group_sizes=(2,)),
        replace(reading, steps=1, pages=2, group_sizes=(1, 2)),
        replace(groups, steps=1, pages=2, group_sizes=(2,)),
    )


def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "STAGES", small_stages())
    monkeypatch.setattr(train, "GATE_STEPS", 1)
    whole = train.Training(tmp_path / "whole")
    assert whole.run(float("inf"))
    stopped = train.Training(tmp_path / "stopped")
    stopped._take_step(train.STAGES[0])
    stopped.save()
    resumed = train.Training(tmp_path / "stopped")
    assert (resumed.stage_number, resumed.step) == (0, 1)
    assert resumed.run(float("inf"))
    for (name, one), other in zip(whole.model.state_dict().items(), resumed.model.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5, msg=name)
    gates = tmp_path / "whole" / "checkpoint" / "sr_swa_gates.safetensors"
    written_at = gates.stat().st_mtime_ns
    again = train.Training(tmp_path / "whole")
    assert again.run(float("inf"))
    assert gates.stat().st_mtime_ns == written_at
    # gates of other weights must not stay beside new ones
    again.save()
    assert not gates.exists()


def test_a_damaged_state_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(b"half a file")
    with pytest.raises(EngineError, match=r"state\.pt cannot be read: .* Remove it to train from the beginning"):
        train.Training(tmp_path)


def test_fresh_gates_are_the_parameter_free_ones_and_training_betters_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = new_model(configuration(), 3)
    training = GateTraining(model)
    training.save(tmp_path)
    text = model.text_config
    gates = load_gates(tmp_path, layers=5, heads=4, key_heads=4, head_size=64)
    assert gates is not None
    assert len(gates.page_gate) == text.num_hidden_layers
    for matrix in (*gates.page_gate, *gates.token_selector):
        torch.testing.assert_close(matrix, torch.eye(64).expand(4, -1, -1))
    before = [float(loss.detach()) for loss in training.losses(1, 4)]
    optimiser = torch.optim.AdamW(training.projections.parameters(), lr=3e-3)
    for _ in range(12):
        page_loss, block_loss = training.losses(1, 4)
        optimiser.zero_grad()
        (page_loss + block_loss).backward()
        optimiser.step()
    after = [float(loss.detach()) for loss in training.losses(1, 4)]
    assert after[0] < before[0] - 0.02
    assert after[1] < before[1]


def test_blocks_of_the_gates_are_the_decoders() -> None:
    training = GateTraining(new_model(configuration(), 3))
    layout = page_layout(VISUAL_TOKENS, block_tokens=BLOCK_TOKENS)
    columns = training._block_columns(2)
    assert len(columns) == 2 * len(layout.block_lengths) == 18
    assert columns[0] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert columns[8] == [9, 18, 27, 36, 45, 54, 63, 72]
    assert columns[9] == [74, 75, 76, 77, 78, 79, 80, 81]
