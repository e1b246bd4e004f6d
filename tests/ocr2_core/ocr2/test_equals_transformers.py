"""Everything selected must be transformers' own R-SWA, far past the window."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.models.unlimited_ocr.modeling_unlimited_ocr import UnlimitedOcrForConditionalGeneration

from ocr2_core.ocr2.errors import DecoderError
from ocr2_core.ocr2.image_preparation import PagePixels
from ocr2_core.ocr2.model import SrSwaOcrModel, load_model
from ocr2_core.ocr2.page_decoder import EncodedPage
from ocr2_core.ocr2.sr_swa_attention import sr_swa_attention_reference
from tests.ocr2_core.ocr2.conftest import (
    BOS,
    IMAGE_TOKEN,
    feed,
    largest_difference,
    make_decoder,
    random_pages,
    random_tokens,
    save_checkpoint,
    small_config,
)

TOLERANCE = 1e-5


@torch.inference_mode()
def transformers_logits(
    folder: Path, pages: list[EncodedPage], prompt: list[int], tokens: list[int], dtype: torch.dtype = torch.float32
) -> NDArray[np.float32]:
    """Logits (1 + tokens, V) of transformers' class and cache, fed the same tokens."""
    model: Any = UnlimitedOcrForConditionalGeneration.from_pretrained(folder, dtype=dtype)
    embed = model.get_input_embeddings()
    features = [page.features.to(dtype) for page in pages]
    prefix = torch.cat([embed(torch.tensor([BOS])), *features, embed(torch.tensor(prompt))])[None]
    cache = DynamicCache(config=model.config.text_config)
    logits = [model(inputs_embeds=prefix, cache=cache, use_cache=True).logits[0, -1]]
    for token in tokens:
        logits.append(model(input_ids=torch.tensor([[token]]), cache=cache, use_cache=True).logits[0, -1])
    return torch.stack(logits).float().numpy()


@pytest.mark.parametrize("dense_layers", [1, 3], ids=["experts", "dense"])
@pytest.mark.parametrize(("window", "steps"), [(128, 310), (8, 60)])
def test_logits_far_past_the_window(tmp_path: Path, window: int, steps: int, dense_layers: int) -> None:
    folder = save_checkpoint(tmp_path, small_config(window=window, dense_layers=dense_layers))
    pages, prompt, tokens = random_pages(3), random_tokens(5, 9), random_tokens(steps)
    decoder = make_decoder(load_model(folder))
    sequence, first = decoder.open_sequence(pages, prompt)
    ours = np.concatenate([first[None], feed(decoder, sequence, tokens)])
    theirs = transformers_logits(folder, pages, prompt, tokens)
    assert np.abs(theirs).max() > 1
    assert largest_difference(ours, theirs) < TOLERANCE


def test_ragged_batch_over_310_decoded_tokens(checkpoint: Path, model: SrSwaOcrModel) -> None:
    """Sequences of different page counts, page shapes and prompts; one joins late, one leaves early."""
    groups = [random_pages(1), random_pages(4, side=5, seed=2), random_pages(2, seed=3)]
    prompts = [random_tokens(3, 1), random_tokens(9, 2), random_tokens(5, 3)]
    fed = [random_tokens(310, 10), random_tokens(310, 11), random_tokens(310, 12)]
    decoder = make_decoder(model)
    logits: list[list[NDArray[np.float32]]] = [[], [], []]
    sequences = [0, 0, 0]
    for step in range(340):
        for number, start in enumerate((0, 0, 20)):
            if step == start:
                sequences[number], first = decoder.open_sequence(groups[number], prompts[number])
                logits[number].append(first)
        running = [n for n, start in enumerate((0, 0, 20)) if start <= step < start + 310 and (n != 1 or step < 150)]
        if step == 150:
            decoder.close_sequence(sequences[1])
        answers = decoder.step({sequences[n]: fed[n][step - (20 if n == 2 else 0)] for n in running})
        for number in running:
            logits[number].append(answers[sequences[number]])
    for number in (0, 1, 2):
        theirs = transformers_logits(
            checkpoint, groups[number], prompts[number], fed[number][: len(logits[number]) - 1]
        )
        assert len(theirs) == (151 if number == 1 else 311)
        assert largest_difference(np.stack(logits[number]), theirs) < TOLERANCE


def test_shared_key_heads(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, small_config(window=8, key_heads=2))
    pages, prompt, tokens = random_pages(2, side=5), random_tokens(4), random_tokens(40)
    decoder = make_decoder(load_model(folder))
    sequence, first = decoder.open_sequence(pages, prompt)
    ours = np.concatenate([first[None], feed(decoder, sequence, tokens)])
    assert largest_difference(ours, transformers_logits(folder, pages, prompt, tokens)) < TOLERANCE


def test_reading_blocks_in_place_equals_transformers(checkpoint: Path, model: SrSwaOcrModel) -> None:
    """The path of the kernels, with the plain reference as the kernel."""
    pages, prompt, tokens = random_pages(2, side=5), random_tokens(4), random_tokens(150)
    decoder = make_decoder(model, kernel=sr_swa_attention_reference)
    sequence, first = decoder.open_sequence(pages, prompt)
    ours = np.concatenate([first[None], feed(decoder, sequence, tokens)])
    assert largest_difference(ours, transformers_logits(checkpoint, pages, prompt, tokens)) < TOLERANCE


def test_bf16_follows_transformers_bf16(checkpoint: Path) -> None:
    pages, prompt, tokens = random_pages(2), random_tokens(4), random_tokens(150)
    decoder = make_decoder(load_model(checkpoint, dtype=torch.bfloat16))
    sequence, first = decoder.open_sequence(pages, prompt)
    ours = np.concatenate([first[None], feed(decoder, sequence, tokens)])
    theirs = transformers_logits(checkpoint, pages, prompt, tokens, torch.bfloat16)
    difference = np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    # an expert chosen otherwise after rounding moves single steps by more
    assert np.median(difference) < 3e-2


def test_greedy_generation_from_pixels(checkpoint: Path, model: SrSwaOcrModel) -> None:
    """The whole way: vision tower, visual tokens, prompt, and transformers' own `generate`."""
    images = torch.rand(3, 3, 128, 128, generator=torch.Generator().manual_seed(4)) * 4 - 2
    prompt = random_tokens(4)
    theirs_model: Any = UnlimitedOcrForConditionalGeneration.from_pretrained(checkpoint)
    ids = torch.tensor([[BOS, *[IMAGE_TOKEN] * 63, *prompt]])
    theirs = theirs_model.generate(
        input_ids=ids, pixel_values=images, attention_mask=torch.ones_like(ids), max_new_tokens=200, do_sample=False,
        eos_token_id=None,
    )  # fmt: skip
    decoder = make_decoder(model)
    pixels = [(index, PagePixels(image, None, (1, 1), 21, (4,) * 4)) for index, image in enumerate(images)]
    pages = decoder.encode_pages(pixels, batch_pages=2)
    assert [(page.page_index, page.token_count) for page in pages] == [(0, 21), (1, 21), (2, 21)]
    sequence, logits = decoder.open_sequence(pages, prompt)
    ours = []
    for _ in range(200):
        ours.append(int(logits.argmax()))
        logits = decoder.step({sequence: ours[-1]})[sequence]
    assert ours == theirs[0, ids.shape[1] :].tolist()
    assert len(set(ours)) > 3


def test_tiled_pages_beside_plain_ones(checkpoint: Path, model: SrSwaOcrModel) -> None:
    """Gundam mode: 3 by 2 tiles of 2 by 2 tokens make rows of 6, the whole page rows of 4; blocks do not fit rows."""
    generator = torch.Generator().manual_seed(6)
    page, other = (torch.randn(3, 128, 128, generator=generator) for _ in range(2))
    tiles = torch.randn(6, 3, 64, 64, generator=generator)
    decoder = make_decoder(model)
    tiled = PagePixels(page, tiles, (3, 2), 4 * 7 + 4 * 5 + 1, (6,) * 4 + (4,) * 4)
    plain = PagePixels(other, None, (1, 1), 21, (4,) * 4)
    encoded = decoder.encode_pages([(0, plain), (1, tiled), (2, plain)])
    assert [(item.page_index, len(item.features)) for item in encoded] == [(0, 21), (1, 49), (2, 21)]
    with torch.no_grad():
        expected = model.get_image_features(
            torch.stack((other, page, other)), tiles, [0, 6, 0], [[1, 1], [3, 2], [1, 1]]
        )
    for item, features in zip(encoded, expected.pooler_output, strict=True):
        assert largest_difference(item.features, features) < TOLERANCE
    prompt, tokens = random_tokens(4), random_tokens(20)
    sequence, first = decoder.open_sequence(encoded, prompt)
    ours = np.concatenate([first[None], feed(decoder, sequence, tokens)])
    assert largest_difference(ours, transformers_logits(checkpoint, encoded, prompt, tokens)) < TOLERANCE
    with pytest.raises(DecoderError, match="page index 7 became 21 visual tokens"):
        decoder.encode_pages([(7, PagePixels(other, None, (1, 1), 31, (5,) * 5))])


def test_a_checkpoint_goes_through_us_unchanged(checkpoint: Path, model: SrSwaOcrModel, tmp_path: Path) -> None:
    """Loaded and saved again by our class, the folder is the one transformers' class would have written."""
    theirs: Any = UnlimitedOcrForConditionalGeneration.from_pretrained(checkpoint)
    theirs.save_pretrained(tmp_path / "theirs")
    model.save_pretrained(tmp_path / "ours")
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
    ]
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    assert (tmp_path / "ours" / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()
    UnlimitedOcrForConditionalGeneration.from_pretrained(tmp_path / "ours")


def test_transformers_generate_still_works_on_our_class(checkpoint: Path, model: SrSwaOcrModel) -> None:
    ids = torch.tensor([[BOS, *random_tokens(20)]])
    theirs: Any = UnlimitedOcrForConditionalGeneration.from_pretrained(checkpoint)
    settings = {"max_new_tokens": 20, "do_sample": False, "attention_mask": torch.ones_like(ids), "eos_token_id": None}
    assert model.generate(ids, **settings).tolist() == theirs.generate(ids, **settings).tolist()
