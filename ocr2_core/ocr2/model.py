"""The OCR2 model: transformers' `UnlimitedOcrForConditionalGeneration`, and how its text attention reaches our caches.

transformers calls a cache's `update` and then the attention function named by the text configuration. We register one
named `sr_swa`: a forward pass that carries a `decode_step` attends through it; any other (prefill, transformers' own
`generate`) attends as `sdpa` does. So the model is loaded, run and saved as transformers does it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import snapshot_download
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.unlimited_ocr.configuration_unlimited_ocr import UnlimitedOcrConfig, UnlimitedOcrTextConfig
from transformers.models.unlimited_ocr.modeling_unlimited_ocr import UnlimitedOcrForConditionalGeneration

from ocr2_core.errors import EngineError
from ocr2_core.ocr2.decode_step import DecodeStep
from ocr2_core.ocr2.gates import TrainedGates, load_gates, save_gates

ATTENTION_NAME = "sr_swa"
_CHECKPOINT_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]

logger = logging.getLogger(__name__)


def _sr_swa_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    decode_step: DecodeStep | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    if decode_step is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return output, None
    layer: Any = module
    return decode_step.attend(layer.layer_idx, query[:, :, 0], scaling)[:, None], None


AttentionInterface.register(ATTENTION_NAME, _sr_swa_forward)
AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)


class SrSwaOcrModel(UnlimitedOcrForConditionalGeneration):  # type: ignore[no-untyped-call]
    """Same as `UnlimitedOcrForConditionalGeneration`, except that its text attention can run a decode step over our
    caches, and that it may hold trained SR-SWA gates. Weights, configuration and saved files are the same."""

    def __init__(self, config: UnlimitedOcrConfig) -> None:
        super().__init__(config)
        self.model.language_model.config._attn_implementation = ATTENTION_NAME
        self.gates: TrainedGates | None = None

    @property
    def text_config(self) -> UnlimitedOcrTextConfig:
        """Configuration of the language model."""
        return cast(UnlimitedOcrTextConfig, self.config.text_config)

    def decode(self, token_ids: Tensor, positions: Tensor, decode_step: DecodeStep) -> Tensor:
        """One step: `token_ids` (B,), `positions` (B,) → logits of the next tokens (B, V) in fp32."""
        language_model = self.model.language_model
        hidden = language_model(
            inputs_embeds=language_model.embed_tokens(token_ids)[:, None],
            position_ids=positions[:, None],
            attention_mask={"reference_sliding_attention": None, "full_attention": None},
            cache=decode_step,
            decode_step=decode_step,
            use_cache=True,
        ).last_hidden_state
        decode_step.finish()
        logits: Tensor = self.lm_head(hidden[:, 0]).float()
        return logits

    def save_pretrained(self, save_directory: str | PathLike[Any], *args: Any, **kwargs: Any) -> None:
        """As transformers does, under the name of its own class, so that anything can load the folder."""
        super().save_pretrained(save_directory, *args, **kwargs)
        self.config.architectures = [UnlimitedOcrForConditionalGeneration.__name__]
        self.config.save_pretrained(save_directory)
        if self.gates is not None:
            save_gates(Path(save_directory), self.gates.projections)


def load_model(
    path_or_id: str | Path,
    *,
    revision: str | None = None,
    sha256: Mapping[str, str] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> SrSwaOcrModel:
    """Load a checkpoint in transformers' `unlimited_ocr` format, with its trained gates if it has any.

    `path_or_id`: a local folder, or a model id on the hub (then `revision`: a commit, branch or tag). `dtype`: None
    takes the checkpoint's own, but fp32 for one stored in float16, whose range is too small for this model family.
    `sha256`: hex digests by file name; every weight file must be named and match.

    Raises EngineError when it cannot be found, does not match, or is not of this format, GateFileError for a gate file
    that cannot be used.
    """
    if dtype is torch.float16:
        raise EngineError("float16 garbles this model family's output (values overflow). Use bfloat16 or float32.")
    folder = Path(path_or_id)
    if not folder.is_dir():
        if folder.is_absolute() or len(folder.parts) != 2:
            raise EngineError(
                f"there is no model folder {folder}. Give a folder, or a model id such as baidu/Unlimited-OCR."
            )
        try:
            folder = Path(snapshot_download(str(path_or_id), revision=revision, allow_patterns=_CHECKPOINT_FILES))
        except Exception as error:
            raise EngineError(
                f"model {path_or_id} (revision {revision or 'main'}) cannot be fetched: {error}. "
                "Check the id and the network, or give a local folder."
            ) from error
    if sha256 is not None:
        _check_digests(folder, sha256)
    try:
        model = SrSwaOcrModel.from_pretrained(folder, dtype=dtype or "auto", local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise EngineError(f"{folder} cannot be loaded as an unlimited_ocr checkpoint: {error}") from error
    if model.dtype is torch.float16:
        logger.warning("%s is stored in float16; it runs in float32, because float16 overflows", folder)
        torch.nn.Module.float(model)
    text = model.text_config
    model.gates = load_gates(
        folder,
        layers=text.num_hidden_layers,
        heads=text.num_attention_heads,
        key_heads=cast(int, text.num_key_value_heads),
        head_size=cast(int, text.head_dim),
    )
    model.train(False)
    torch.nn.Module.to(model, device)
    return model


def _check_digests(folder: Path, expected: Mapping[str, str]) -> None:
    unnamed = sorted({path.name for path in folder.glob("*.safetensors")} - expected.keys())
    if unnamed:
        raise EngineError(f"{folder} holds weight files without an expected SHA-256: {', '.join(unnamed)}")
    for name, digest in expected.items():
        try:
            with (folder / name).open("rb") as file:
                actual = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise EngineError(f"{folder / name} cannot be read to check its SHA-256: {error}") from error
        if actual != digest.lower():
            raise EngineError(
                f"{folder / name} has SHA-256 {actual}, expected {digest}. Fetch it again from a source you trust."
            )
