import pytest
import torch

from ocr2_core.ocr2.sr_swa_attention import attend_gathered, sr_swa_attention_reference

B, H, HKV, D, N, TB, S, C, K, W = 3, 4, 2, 16, 12, 16, 5, 5, 7, 8


def inputs(dtype: torch.dtype = torch.float32) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    lengths = torch.full((N,), TB, dtype=torch.int32)
    lengths[0], lengths[4] = 0, 3
    return {
        "queries": normal(B, H, D),
        "key_blocks": normal(HKV, N, TB, D),
        "value_blocks": normal(HKV, N, TB, D),
        "selected_blocks": torch.tensor([[1, 4, 9, 2, 3], [5, 6, 0, 0, 0], [11, 10, 4, 0, 0]]),
        "selected_counts": torch.tensor([5, 2, 3], dtype=torch.int32),
        "block_lengths": lengths,
        "kept_keys": normal(C, HKV, K, D),
        "kept_values": normal(C, HKV, K, D),
        "kept_counts": torch.tensor([7, 1, 4], dtype=torch.int32),
        "ring_keys": normal(C, HKV, W, D),
        "ring_values": normal(C, HKV, W, D),
        "ring_counts": torch.tensor([8, 1, 5], dtype=torch.int32),
        "slots": torch.tensor([4, 0, 2]),
        "scale": D**-0.5,
    }


def test_the_reference_is_softmax_attention_over_exactly_the_named_tokens() -> None:
    given = inputs()
    output = sr_swa_attention_reference(**given)  # type: ignore[arg-type]
    keys = torch.cat(
        [
            *(given["key_blocks"][:, block, : 3 if block == 4 else 16] for block in (11, 10, 4)),  # type: ignore[index]
            given["kept_keys"][2, :, :4],  # type: ignore[index]
            given["ring_keys"][2, :, :5],  # type: ignore[index]
        ],
        dim=1,
    )
    values = torch.cat(
        [
            *(given["value_blocks"][:, block, : 3 if block == 4 else 16] for block in (11, 10, 4)),  # type: ignore[index]
            given["kept_values"][2, :, :4],  # type: ignore[index]
            given["ring_values"][2, :, :5],  # type: ignore[index]
        ],
        dim=1,
    )
    assert keys.shape[1] == 16 + 16 + 3 + 4 + 5
    for head in range(H):
        weights = torch.softmax(keys[head // 2] @ given["queries"][2, head] / 4, dim=0)  # type: ignore[index]
        torch.testing.assert_close(output[2, head], weights @ values[head // 2], rtol=1e-5, atol=1e-6)


def test_the_reference_does_not_depend_on_block_order() -> None:
    given = inputs()
    before = sr_swa_attention_reference(**given)  # type: ignore[arg-type]
    given["selected_blocks"] = torch.tensor([[3, 2, 9, 1, 4], [6, 5, 0, 0, 0], [4, 11, 10, 0, 0]])
    torch.testing.assert_close(sr_swa_attention_reference(**given), before, rtol=0, atol=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_attending_over_gathered_columns_equals_the_reference(dtype: torch.dtype, tolerance: float) -> None:
    given = inputs(dtype)
    columns = W + K + S * TB
    keys, values = torch.zeros(B, HKV, columns, D, dtype=dtype), torch.zeros(B, HKV, columns, D, dtype=dtype)
    bias = torch.full((B, columns), float("-inf"), dtype=dtype)
    for row, slot in enumerate(given["slots"].tolist()):  # type: ignore[attr-defined]
        ring, kept = int(given["ring_counts"][row]), int(given["kept_counts"][row])  # type: ignore[index]
        blocks = given["selected_blocks"][row, : int(given["selected_counts"][row])]  # type: ignore[index]
        held = (torch.arange(TB) < given["block_lengths"][blocks, None]).flatten()  # type: ignore[index]
        end = W + K + len(held)
        for name, target in (("key", keys), ("value", values)):
            target[row, :, :W] = given[f"ring_{name}s"][slot]  # type: ignore[index]
            target[row, :, W : W + K] = given[f"kept_{name}s"][slot]  # type: ignore[index]
            target[row, :, W + K : end] = given[f"{name}_blocks"][:, blocks].flatten(1, 2)  # type: ignore[index]
        bias[row, :ring] = bias[row, W : W + kept] = 0
        bias[row, W + K : end][held] = 0
    output = attend_gathered(given["queries"], keys, values, bias, D**-0.5)  # type: ignore[arg-type]
    reference = sr_swa_attention_reference(**given)  # type: ignore[arg-type]
    torch.testing.assert_close(output, reference, rtol=0, atol=tolerance)
