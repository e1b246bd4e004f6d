"""Trained SR-SWA gates: projections that replace the plain dot products of page gate and token selector.

A checkpoint carries them in `sr_swa_gates.safetensors` beside its weights, for every layer i and both gates:
`layers.{i}.page_gate.query_proj`, `layers.{i}.token_selector.query_proj` (heads, head size, gate size) and `….key_proj`
(key/value heads, head size, gate size). A block's logit is (q·Wq)·(k̄·Wk) / √gate size, with q and k̄ rotated, as the
attention sees them. The product Wq·Wkᵀ is formed once at loading and applied to the query, so block summaries stay mean
keys and cost nothing more. No file means the parameter-free gates; a file that is partial, mis-shaped or not finite is
an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ocr2_core.ocr2.errors import GateFileError

GATE_FILE = "sr_swa_gates.safetensors"
_GATES = ("page_gate", "token_selector")


@dataclass(frozen=True, slots=True)
class TrainedGates:
    """`page_gate`, `token_selector`: one (heads, head size, head size) fp32 matrix a layer, √head size / √gate size
    included, so that the caller's usual 1/√head size scale makes it whole. `projections`: as they stood in the file."""

    page_gate: tuple[Tensor, ...]
    token_selector: tuple[Tensor, ...]
    projections: dict[str, Tensor]


def load_gates(folder: Path, *, layers: int, heads: int, key_heads: int, head_size: int) -> TrainedGates | None:
    """The gates of the checkpoint in `folder`; None where it has none. Raises GateFileError (see the module)."""
    path = folder / GATE_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            projections = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise GateFileError(f"{path} cannot be read: {error}. Fetch it again, or remove it.") from error
    tensors = {name: tensor.float() for name, tensor in projections.items()}
    expected = {
        f"layers.{layer}.{gate}.{part}_proj": heads if part == "query" else key_heads
        for layer in range(layers)
        for gate in _GATES
        for part in ("query", "key")
    }
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unknown:
        raise GateFileError(
            f"{path} does not hold the gates of this model: missing {_first(missing)}, unknown {_first(unknown)}. "
            "Use the gates trained for this checkpoint, or remove the file."
        )
    for name, head_count in expected.items():
        shape = tuple(tensors[name].shape)
        if len(shape) != 3 or shape[:2] != (head_count, head_size) or shape[2] < 1:
            raise GateFileError(f"{path}: {name} has shape {shape}, expected ({head_count}, {head_size}, gate size).")
        if not torch.isfinite(tensors[name]).all():
            raise GateFileError(f"{path}: {name} holds values that are not finite.")
    page_gate, token_selector = (_folded(path, tensors, gate, layers) for gate in _GATES)
    return TrainedGates(page_gate, token_selector, projections)


def save_gates(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write a gate file from named projections."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / GATE_FILE)


def _folded(path: Path, tensors: dict[str, Tensor], gate: str, layers: int) -> tuple[Tensor, ...]:
    matrices = []
    for layer in range(layers):
        query, key = (tensors[f"layers.{layer}.{gate}.{part}_proj"] for part in ("query", "key"))
        if query.shape[2] != key.shape[2]:
            raise GateFileError(
                f"{path}: layers.{layer}.{gate} projects queries to {query.shape[2]} and keys to {key.shape[2]} values."
            )
        key = key.repeat_interleave(query.shape[0] // key.shape[0], dim=0)
        matrices.append(query @ key.transpose(1, 2) * (query.shape[1] / query.shape[2]) ** 0.5)
    return tuple(matrices)


def _first(names: list[str], most: int = 3) -> str:
    if not names:
        return "none"
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
