"""What the OCR2 benchmarks share: a model of the real geometry with random weights, documents whose pages' keys and
values are noise, and the baselines that a decode step is compared with.

Pages are "prefilled" by writing noise into the cache: prefill is not what these benchmarks measure, and on one CPU
thread it would take most of an hour. All else (blocks, hand-overs, selection, rings, positions) is the real decoder.
Noise spreads attention over all pages, the hardest case for memory locality and all the same for the arithmetic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.models.unlimited_ocr.configuration_unlimited_ocr import UnlimitedOcrConfig

from ocr2_core.ocr2 import group_cache, model_decoder
from ocr2_core.ocr2.block_pool import BlockPool
from ocr2_core.ocr2.decode_step import DecodeStep
from ocr2_core.ocr2.local_cache import LocalCache
from ocr2_core.ocr2.model import SrSwaOcrModel
from ocr2_core.ocr2.model_decoder import DecoderSettings, ModelDecoder
from ocr2_core.ocr2.page_decoder import EncodedPage
from ocr2_core.ocr2.prefill import TokenPlaces
from ocr2_core.ocr2.selection import SelectionSettings
from ocr2_core.ocr2.sr_swa_attention import attend_gathered

PAGE_TOKENS = 273
TEXT_TOKENS_A_PAGE = 2277
BLOCKS_A_PAGE = 17
PROMPT = (10, 11, 12, 13, 14)
KEPT_AROUND = 1 + len(PROMPT)
WINDOW = 128
PAGE_TOKEN = 9
_NOISE = 1 << 20


def real_model(**text: Any) -> SrSwaOcrModel:
    """The language model of `baidu/Unlimited-OCR` in bfloat16, weights random; `text` changes its configuration. The
    vision encoders stay without storage."""
    torch.manual_seed(0)
    config = UnlimitedOcrConfig(text_config={"vocab_size": 129_280, **text}, dtype="bfloat16")
    with torch.device("meta"):
        model = SrSwaOcrModel(config).to(torch.bfloat16)
    noise = torch.randn(_NOISE, dtype=torch.bfloat16)
    language_model = model.model.language_model
    for module in (*language_model.modules(), model.lm_head):
        for name, weight in list(module.named_parameters(recurse=False)):
            scale = 1.0 if weight.dim() < 2 else weight.shape[-1] ** -0.5
            filled = torch.empty(weight.shape, dtype=torch.bfloat16)
            chunk = noise * scale if weight.dim() > 1 else torch.ones_like(noise)
            for part in filled.view(-1).split(_NOISE):
                part.copy_(chunk[: len(part)])
            module.register_parameter(name, torch.nn.Parameter(filled, requires_grad=False))
    language_model.rotary_emb = type(language_model.rotary_emb)(config=model.text_config)
    return model.eval()


def write_noise(
    _language_model: Any,
    embeddings: Tensor,
    places: TokenPlaces,
    _cached: TokenPlaces,
    *,
    pool: BlockPool,
    local: LocalCache,
    slot: int,
    chunk_tokens: int,
) -> Tensor:
    """Stands in for `prefill`: noise for the keys and values of the same tokens, in the same places."""
    del chunk_tokens
    in_blocks, kept = places.pool_columns >= 0, places.kept_columns >= 0
    columns, kept_columns = places.pool_columns[in_blocks], places.kept_columns[kept]
    heads, size = pool.keys.shape[1], pool.keys.shape[4]
    noise = torch.randn(2, heads, len(columns) + len(kept_columns), size).to(pool.keys.dtype)
    for layer in range(pool.keys.shape[0]):
        keys, values = noise.roll(layer, dims=2)
        pool.write(layer, columns, keys[:, : len(columns)], values[:, : len(columns)])
        local.write_kept(layer, slot, kept_columns, keys[:, len(columns) :], values[:, len(columns) :])
    return embeddings[-1]


@contextmanager
def noise_for_prefill() -> Iterator[None]:
    real = group_cache.prefill
    group_cache.prefill = write_noise
    try:
        yield
    finally:
        group_cache.prefill = real


def pages_of(model: SrSwaOcrModel, first: int, end: int) -> list[EncodedPage]:
    features = torch.zeros(1, model.text_config.hidden_size, dtype=torch.bfloat16).expand(PAGE_TOKENS, -1)
    return [EncodedPage(index, PAGE_TOKENS, features) for index in range(first, end)]


def decoder_of(model: SrSwaOcrModel, page_count: int, selection: SelectionSettings | None = None) -> ModelDecoder:
    settings = DecoderSettings(page_count * BLOCKS_A_PAGE, selection or SelectionSettings())
    return ModelDecoder(model, settings, page_token_id=PAGE_TOKEN)


def open_document(decoder: ModelDecoder, page_count: int, current_page_index: int | None = None) -> int:
    """A sequence over pages of noise, past its first window of output tokens, reading the page in the middle."""
    with noise_for_prefill():
        sequence, _ = decoder.open_sequence(pages_of(decoder.model, 0, page_count), PROMPT)
    read_past_the_window(decoder, sequence)
    decoder.set_current_page(sequence, page_count // 2 if current_page_index is None else current_page_index)
    return sequence


def read_past_the_window(decoder: ModelDecoder, sequence: int) -> None:
    """Feed as many tokens as the ring holds, counted only: what stands in the ring does not matter here."""
    state = decoder._sequences[sequence]
    state.output_count += decoder.local.window
    state.next_position += decoder.local.window


class AttentionClock:
    """CPU seconds spent in attention: its preparation, gate, gathering and the attention itself."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return call(*arguments, **named)
            finally:
                self.seconds += time.process_time() - start

        return run


@contextmanager
def clock_on_decode_steps(clock: AttentionClock) -> Iterator[None]:
    """Time the decoder's own steps: making a DecodeStep, storing the token, selecting, gathering, attending."""

    class TimedStep(DecodeStep):
        update = clock.timed(DecodeStep.update)
        attend = clock.timed(DecodeStep.attend)

    real = model_decoder.DecodeStep
    model_decoder.DecodeStep = clock.timed(TimedStep)
    try:
        yield
    finally:
        model_decoder.DecodeStep = real


class WholeStep:
    """Baseline: attends to all columns in place, without copying any; the last is the current token's.

    One layer's keys and values serve all layers: at these sizes they leave the CPU's caches between two layers, as if
    each layer had its own, and a document's full text fits into memory.
    """

    def __init__(self, keys: Tensor, values: Tensor, clock: AttentionClock) -> None:
        self._keys, self._values = keys, values
        self.update = clock.timed(self._update)
        self.attend = clock.timed(self._attend)

    def _update(self, keys: Tensor, values: Tensor, _layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self._keys[:, :, -1], self._values[:, :, -1] = keys[:, :, 0], values[:, :, 0]
        return keys, values

    def _attend(self, _layer: int, queries: Tensor, scale: float) -> Tensor:
        return attend_gathered(queries, self._keys, self._values, None, scale)

    def finish(self) -> None:
        """Nothing to count."""


def noise_columns(model: SrSwaOcrModel, batch: int, token_count: int) -> tuple[Tensor, Tensor]:
    """Keys and values (batch, heads, tokens, head size) of one layer."""
    text = model.text_config
    shape = (batch, text.num_key_value_heads, token_count, text.head_dim)
    noise = torch.randn(_NOISE, dtype=torch.bfloat16)
    filled = [torch.empty(shape, dtype=torch.bfloat16) for _ in range(2)]
    for tensor in filled:
        for part in tensor.view(-1).split(_NOISE):
            part.copy_(noise[: len(part)])
    return filled[0], filled[1]


def full_tokens(page_count: int) -> int:
    """Tokens that full attention keeps at the end of a document: every page's visual and text tokens."""
    return page_count * (PAGE_TOKENS + TEXT_TOKENS_A_PAGE)


def reference_tokens(page_count: int) -> int:
    """Tokens that R-SWA keeps: BOS, all pages, prompt and window."""
    return page_count * PAGE_TOKENS + KEPT_AROUND + WINDOW


def some_tokens(batch: int) -> list[int]:
    """Different at each call, so that tokens go to different experts, as they do when text is read."""
    return torch.randint(1000, 100_000, (batch,)).tolist()


@torch.inference_mode()
def baseline_step(model: SrSwaOcrModel, step: Any, batch: int, position: int) -> None:
    model.decode(torch.tensor(some_tokens(batch)), torch.full((batch,), position), step)


def our_steps(decoder: ModelDecoder, sequences: Sequence[int], count: int) -> None:
    for _ in range(count):
        decoder.step(dict(zip(sequences, some_tokens(len(sequences)), strict=True)))


def transformers_cache(model: SrSwaOcrModel, page_count: int) -> DynamicCache:
    """transformers' own cache of this model, holding a document's pages and prompt and a full window."""
    keys, values = noise_columns(model, 1, reference_tokens(page_count))
    prefill_length = page_count * PAGE_TOKENS + KEPT_AROUND
    cache = DynamicCache(config=model.text_config)
    for index, layer in enumerate(cache.layers):
        layer.set_prefill_length(prefill_length)
        cache.update(keys[:, :, :prefill_length], values[:, :, :prefill_length], index)
        for first in range(prefill_length, keys.shape[2]):
            if first == prefill_length or first == keys.shape[2] - 1:
                cache.update(keys[:, :, first : first + 1], values[:, :, first : first + 1], index)
    return cache


@torch.inference_mode()
def transformers_step(model: SrSwaOcrModel, cache: DynamicCache, position: int) -> None:
    """One step through the same model as transformers runs it, with its own cache and masks."""
    language_model = model.model.language_model
    hidden = language_model(
        inputs_embeds=language_model.embed_tokens(torch.tensor([some_tokens(1)])),
        position_ids=torch.tensor([[position]]),
        cache=cache,
        use_cache=True,
    ).last_hidden_state
    model.lm_head(hidden[:, 0]).float()


def cpu_seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def one_thread() -> None:
    torch.set_num_threads(1)


def median_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Median of the ratios of runs that were made next to each other."""
    ratios = sorted(one / other for one, other in zip(slow, fast, strict=True))
    middle = len(ratios) // 2
    return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
