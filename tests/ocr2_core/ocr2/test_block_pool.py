import pytest
import torch

from ocr2_core.errors import EngineError
from ocr2_core.ocr2.block_pool import BlockPool
from ocr2_core.ocr2.errors import PoolExhausted
from ocr2_core.ocr2.page_layout import page_layout


def make_pool(**settings: object) -> BlockPool:
    return BlockPool(**{"layers": 2, "key_heads": 3, "head_size": 8, "block_count": 6, **settings})  # type: ignore[arg-type]


def test_a_base_mode_page_is_seventeen_full_blocks_of_rows_and_newlines() -> None:
    layout = page_layout(273)
    assert layout.block_lengths == (16,) * 17
    assert layout.separator == 272
    assert layout.stream[16:32] == tuple(range(17, 33))
    assert layout.stream[256:] == tuple(range(16, 272, 17))


def test_other_page_shapes_have_at_most_one_partial_block_and_lose_no_token() -> None:
    gundam = page_layout(20 * 21 + 16 * 17 + 1, (20,) * 20 + (16,) * 16)
    assert sorted(gundam.stream) == list(range(20 * 21 + 16 * 17))
    assert gundam.block_lengths == (16,) * 43 + (4,)
    assert page_layout(7).block_lengths == (6,)
    assert page_layout(7).stream == (0, 1, 3, 4, 2, 5)
    assert page_layout(10).stream == tuple(range(9))


def test_rows_that_do_not_make_the_page_are_refused() -> None:
    with pytest.raises(ValueError, match="make 13 tokens, the page has 14"):
        page_layout(14, (3, 3, 3))


def test_exhaustion_allocates_nothing_and_says_what_to_do() -> None:
    pool = make_pool()
    assert pool.allocate([16] * 4) == [1, 2, 3, 4]
    with pytest.raises(PoolExhausted, match="2 of 6 blocks free, 3 are needed") as caught:
        pool.allocate([16] * 3)
    assert isinstance(caught.value, EngineError)
    assert (pool.free_count, pool.used_count) == (2, 4)


def test_released_blocks_are_handed_out_again_and_never_twice() -> None:
    pool = make_pool()
    first = pool.allocate([16, 16, 5])
    pool.release(first[:2])
    with pytest.raises(ValueError, match="not in use"):
        pool.release(first[:1])
    assert pool.used_count == 1
    assert pool.allocate([16] * 5) == [1, 2, 4, 5, 6]
    assert 0 not in pool.allocate([])


def test_a_partial_block_starts_empty_whatever_lay_there_before() -> None:
    pool = make_pool()
    pool.keys.fill_(float("nan"))
    (block,) = pool.allocate([5])
    assert pool.keys[:, :, block].abs().sum() == 0
    assert pool.block_lengths.tolist() == [0, 5, 0, 0, 0, 0, 0]


def test_released_blocks_are_overwritten_when_asked() -> None:
    pool = make_pool(zero_released=True)
    blocks = pool.allocate([16, 16])
    for layer in range(2):
        pool.write(layer, torch.arange(16, 48), torch.ones(3, 32, 8), torch.ones(3, 32, 8))
    pool.summarise(blocks)
    pool.release(blocks[:1])
    assert pool.keys[:, :, 1].abs().sum() == pool.values[:, :, 1].abs().sum() == pool.summaries[:, 1].sum() == 0
    assert pool.keys[:, :, 2].sum() == 2 * 3 * 16 * 8


def test_a_summary_is_the_mean_of_the_keys_held() -> None:
    pool = make_pool()
    full, partial = pool.allocate([16, 3])
    keys = torch.randn(3, 19, 8, generator=torch.Generator().manual_seed(0))
    for layer in range(2):
        pool.write(layer, torch.arange(16, 35), keys * (layer + 1), keys)
    pool.summarise([full, partial])
    torch.testing.assert_close(pool.summaries[1, full], 2 * keys[:, :16].mean(1))
    torch.testing.assert_close(pool.summaries[0, partial], keys[:, 16:].mean(1))


def test_bytes_are_those_of_the_real_geometry() -> None:
    pool = BlockPool(layers=12, key_heads=10, head_size=128, block_count=1, dtype=torch.bfloat16)
    assert pool.block_bytes == 16 * 61_440
    assert pool.summary_bytes == 12 * 10 * 128 * 2
    assert pool.storage_bytes == 2 * pool.block_bytes
