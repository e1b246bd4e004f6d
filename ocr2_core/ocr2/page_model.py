"""What the engine needs of a loaded checkpoint: a decoder, its vocabulary, and pages turned into visual tokens."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ocr2_core.engine import PageImage
from ocr2_core.errors import EngineError
from ocr2_core.ocr2.guards import StructureTokens
from ocr2_core.ocr2.page_decoder import EncodedPage, PageDecoder
from ocr2_core.ocr2.sequence_reading import OutputVocabulary

if TYPE_CHECKING:
    from ocr2_core.ocr2.image_preparation import ImageSettings
    from ocr2_core.ocr2.model import SrSwaOcrModel
    from ocr2_core.ocr2.model_decoder import ModelDecoder

logger = logging.getLogger(__name__)

GROUP_PROMPT = "Multi page parsing."
SINGLE_PROMPT = "document parsing."
PAGE_MARKER = "<PAGE>"
_STRUCTURE = ("<|det|>", "<|/det|>", "<|ref|>", "<|/ref|>", "<|grounding|>")
_TABLE_TAGS = ("table", "thead", "tbody", "tr", "td", "th")
# a marker's last token may take the line break behind it along
_LONGEST_MARKER_TOKENS = 8
# data only: a repository's own code is neither fetched nor run
_CHECKPOINT_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
_SAMPLES, _SAMPLE_BYTES = 64, 2**18
# share of the free memory that the pool may take
_POOL_SHARE = 0.5


class PageModel(Protocol):
    """A loaded model. `encode` and `encode_alone` may be called from a thread of their own while the decoder runs."""

    @property
    def decoder(self) -> PageDecoder: ...

    @property
    def vocabulary(self) -> OutputVocabulary: ...

    def encode(self, page: PageImage) -> EncodedPage:
        """The page's visual tokens for reading it in a group."""
        ...

    def encode_alone(self, page: PageImage) -> EncodedPage:
        """The same at a higher resolution, for reading it by itself."""
        ...


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which checkpoint, where it runs, and how many pages its KV pool has to hold.

    `model_path`: a folder, or a hub id with `revision`. `sha256`: hex digests of the weight files, by name, to be
    checked. `device`: `auto` takes a GPU where there is one. `dtype`: `auto` is the checkpoint's own, float32 for one
    in float16, which overflows. `pool_pages`: pages all groups that decode at a time hold together;
    `least_pool_pages` one group's. `kv_cache_bytes` sets the pool's size outright.
    """

    model_path: str
    revision: str | None = None
    sha256: Mapping[str, str] | None = None
    device: str = "auto"
    dtype: str = "auto"
    pool_pages: int = 12
    least_pool_pages: int = 12
    kv_cache_bytes: int | None = None


class TokenizerVocabulary:
    """The vocabulary of a transformers tokenizer. Raises EngineError where it lacks what the model's output needs."""

    def __init__(self, tokenizer: Any, stop_token_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._may_end_marker: dict[int, bool] = {}
        self.stop_token_ids = stop_token_ids
        self.page_marker_token_ids = self._ids(PAGE_MARKER)
        self.group_prompt_token_ids = self._ids(GROUP_PROMPT)
        self.single_prompt_token_ids = self._ids(SINGLE_PROMPT)
        tags = [f"<{slash}{name}>" for name in _TABLE_TAGS for slash in ("", "/")]
        single = {text: ids[0] for text in (*_STRUCTURE, *tags) if len(ids := self._ids(text)) == 1}
        if not {"<|det|>", "<|/det|>"} <= single.keys():
            raise EngineError("The checkpoint's tokenizer has no <|det|> token: it is not one of Unlimited-OCR.")
        row_ends = frozenset({single["</tr>"]} if "</tr>" in single else ())
        structure = {*single.values(), *stop_token_ids}
        if len(self.page_marker_token_ids) == 1:
            structure.update(self.page_marker_token_ids)
        self.structure = StructureTokens(frozenset(structure), row_ends)

    def text(self, token_ids: Sequence[int]) -> str:
        return str(
            self._tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def marker_length(self, token_ids: Sequence[int]) -> int:
        """See OutputVocabulary. Where the marker is no token of its own, the text of the last tokens is looked at."""
        if not token_ids:
            return 0
        last = token_ids[-1]
        if len(self.page_marker_token_ids) == 1:
            return int(last == self.page_marker_token_ids[0])
        if last not in self._may_end_marker:
            self._may_end_marker[last] = PAGE_MARKER[-1] in self.text([last])
        if not self._may_end_marker[last]:
            return 0
        for length in range(1, min(_LONGEST_MARKER_TOKENS, len(token_ids)) + 1):
            if PAGE_MARKER in self.text(token_ids[-length:]):
                return length
        return 0

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))


class CheckpointPageModel:
    """A checkpoint of Unlimited-OCR, loaded."""

    def __init__(self, model: SrSwaOcrModel, decoder: ModelDecoder, tokenizer: Any, images: ImageSettings) -> None:
        self._model = model
        self.decoder = decoder
        self.vocabulary: OutputVocabulary = TokenizerVocabulary(tokenizer, decoder.stop_token_ids)
        self._images = images

    @classmethod
    def load(cls, options: ModelOptions) -> CheckpointPageModel:
        """Load the checkpoint. Raises EngineError where it cannot be used."""
        folder = checkpoint_folder(options.model_path, options.revision)
        try:
            import torch
            from transformers import AutoTokenizer
        except ImportError as error:
            raise EngineError(f"The engine `ocr2` cannot start: {error}. Install the `ocr2` extra.") from error
        from ocr2_core.ocr2.image_preparation import ImageSettings
        from ocr2_core.ocr2.model import load_model
        from ocr2_core.ocr2.model_decoder import DecoderSettings, ModelDecoder

        device = options.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = None if options.dtype == "auto" else getattr(torch, options.dtype, None)
        if options.dtype != "auto" and not isinstance(dtype, torch.dtype):
            raise EngineError(f"Unknown dtype {options.dtype!r}. Use bfloat16 or float32.")
        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError) as error:
            raise EngineError(f"{folder} has no usable tokenizer: {error}") from error
        model = load_model(folder, dtype=dtype, device=device, sha256=options.sha256)
        images = ImageSettings.from_checkpoint(folder)
        page_blocks = _blocks_a_page(images)
        decoder = ModelDecoder(
            model,
            DecoderSettings(pool_blocks=_pool_blocks(options, model, device, page_blocks)),
            page_token_id=tokenizer.encode(PAGE_MARKER, add_special_tokens=False)[-1],
        )
        return cls(model, decoder, tokenizer, images)

    def encode(self, page: PageImage) -> EncodedPage:
        from ocr2_core.ocr2.image_preparation import ImageMode, prepare_page

        return self.decoder.encode_pages([(page.page_index, prepare_page(page.image, ImageMode.BASE, self._images))])[0]

    def encode_alone(self, page: PageImage) -> EncodedPage:
        from ocr2_core.ocr2.image_preparation import ImageMode, prepare_page

        pixels = prepare_page(page.image, ImageMode.GUNDAM, self._images)
        return self.decoder.encode_pages([(page.page_index, pixels)])[0]


def check_model_path(model_path: str | Path | None) -> str:
    """The path as a string. Raises EngineError where it is neither a folder nor a hub id, and says what to set."""
    remedy = (
        "Set model_path (OCR2KB_MODEL_PATH, or --model) to the folder of an Unlimited-OCR checkpoint, or to a hub id "
        "such as baidu/Unlimited-OCR."
    )
    if not model_path:
        raise EngineError(f"The engine `ocr2` needs a model. {remedy}")
    path = Path(model_path).expanduser()
    if not path.is_dir() and (path.is_absolute() or len(path.parts) != 2):
        raise EngineError(f"There is no model folder {model_path}. {remedy}")
    return str(model_path)


def checkpoint_folder(model_path: str, revision: str | None) -> Path:
    """The local folder of a checkpoint; a hub id is fetched first. Raises EngineError where there is none."""
    folder = Path(check_model_path(model_path)).expanduser()
    if folder.is_dir():
        return folder
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(model_path, revision=revision, allow_patterns=_CHECKPOINT_FILES))
    except Exception as error:
        raise EngineError(
            f"The model {model_path} (revision {revision or 'main'}) cannot be fetched: {error}. Check the id and the "
            "network, or set model_path (OCR2KB_MODEL_PATH, or --model) to a local folder."
        ) from error


def checkpoint_digest(model_path: str) -> str:
    """Short hash of a local checkpoint's JSON files and samples of its weights; empty for a hub id."""
    folder = Path(model_path).expanduser()
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json":
            digest.update(path.name.encode() + path.read_bytes())
        elif path.suffix == ".safetensors":
            digest.update(f"{path.name}:{path.stat().st_size}".encode() + _samples(path))
    return digest.hexdigest()[:16]


def _samples(path: Path) -> bytes:
    """Pieces of a weights file, its header among them: they tell checkpoints apart, the whole file takes minutes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        pieces = []
        for number in range(_SAMPLES):
            file.seek(size * number // _SAMPLES)
            pieces.append(file.read(_SAMPLE_BYTES))
    return b"".join(pieces)


def _blocks_a_page(images: ImageSettings) -> int:
    from ocr2_core.ocr2.page_layout import BLOCK_TOKENS

    side = images.tokens_a_side(images.page_side_px)
    return -(-side * (side + 1) // BLOCK_TOKENS)


def _pool_blocks(options: ModelOptions, model: SrSwaOcrModel, device: str, page_blocks: int) -> int:
    """Blocks for what is to decode at a time, as far as memory reaches; for one group at the least."""
    from ocr2_core.ocr2.page_layout import BLOCK_TOKENS

    text: Any = model.text_config
    value_bytes = int(next(model.parameters()).element_size())
    token_bytes = 2 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim * value_bytes
    block_bytes = BLOCK_TOKENS * int(token_bytes)
    if options.kv_cache_bytes is not None:
        return max(1, options.kv_cache_bytes // block_bytes)
    affordable = int(_free_bytes(device) * _POOL_SHARE) // block_bytes
    blocks = max(min(options.pool_pages * page_blocks, affordable), options.least_pool_pages * page_blocks)
    logger.info("KV pool: %d blocks, %.2f GB", blocks, blocks * block_bytes / 1e9)
    return blocks


def _free_bytes(device: str) -> int:
    import torch

    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
