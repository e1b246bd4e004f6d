"""Reads the text of cut-out lines: PP-OCRv6's recogniser (CTC), as bundled with rapidocr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr2_core.errors import EngineError
from ocr2_core.model_runtime import Array, Model, load_model

MODEL_NAME = "PP-OCRv6_rec_small.onnx"
LINE_HEIGHT_PX = 48
_WIDTH_STEP_PX = 160
_COLUMN_PX = 8  # the network shrinks the width by this much


@dataclass(frozen=True, slots=True)
class RecognisedLine:
    """What one crop says. `centres` are the characters' middles as shares (0..1) of the crop's width."""

    text: str
    confidence: float
    centres: tuple[float, ...] = ()
    character_confidences: tuple[float, ...] = ()


class TextRecogniser:
    """CRNN-style recognition with greedy CTC decoding (Graves et al., 2006).

    Lines are padded to widths in steps of 160 px, so that the runtime meets few shapes, and run one by one: on CPUs
    batches of this network are slower than single lines (they fall out of the cache), and a line's result cannot
    depend on its neighbours.
    """

    def __init__(self, *, thread_count: int = 1, cache_dir: Path | None = None, runtime: str = "auto") -> None:
        from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode

        self._model: Model = load_model(
            model_path(),
            thread_count=thread_count,
            cache_dir=cache_dir,
            runtime=runtime,
            parallel=True,
            rewrite=_keep_best_class,
        )
        dictionary = self._model.metadata.get("character", "").splitlines()
        if not dictionary:
            raise EngineError(f"The model file {MODEL_NAME} carries no dictionary. Install the `embedded` extra again.")
        self._characters: list[str] = CTCLabelDecode(character=dictionary).character

    @property
    def runtime(self) -> str:
        return self._model.runtime

    def __call__(self, crops_bgr: Sequence[NDArray[np.uint8]]) -> list[RecognisedLine]:
        """One result for each crop (height_px, width_px, 3), in the same order."""
        # sorted by width, the runtime changes shape as seldom as possible
        order = sorted(range(len(crops_bgr)), key=lambda index: _scaled_width(crops_bgr[index]))
        outputs = self._model.map(self._batches(crops_bgr, order))
        results = [RecognisedLine("", 0.0)] * len(crops_bgr)
        for index, output in zip(order, outputs, strict=True):
            results[index] = self._decode(output, _scaled_width(crops_bgr[index]))
        return results

    def _batches(self, crops: Sequence[NDArray[np.uint8]], order: Sequence[int]) -> Iterator[Array]:
        for index in order:
            yield _prepare(crops[index])

    def _decode(self, outputs: list[Array], width_px: int) -> RecognisedLine:
        if len(outputs) == 2:
            probabilities, classes = outputs[0][0, :, 0], outputs[1][0, :, 0]
        else:
            classes = outputs[0][0].argmax(axis=1)
            probabilities = outputs[0][0].max(axis=1)
        starts = np.ones(len(classes), bool)
        starts[1:] = classes[1:] != classes[:-1]
        runs = np.flatnonzero(starts)
        ends = np.append(runs[1:], len(classes))
        characters, centres, confidences = [], [], []
        for begin, end in zip(runs, ends, strict=True):
            if classes[begin] == 0:
                continue
            characters.append(self._characters[int(classes[begin])])
            centres.append(min(1.0, (begin + end) / 2 * _COLUMN_PX / width_px))
            confidences.append(float(probabilities[begin:end].max()))
        if not characters:
            return RecognisedLine("", 0.0)
        confidence = min(1.0, float(np.mean(confidences)))
        return RecognisedLine("".join(characters), confidence, tuple(centres), tuple(confidences))


def model_path() -> Path:
    return Path(str(files("rapidocr"))) / "models" / MODEL_NAME


def _scaled_width(crop: NDArray[np.uint8]) -> int:
    height, width = crop.shape[:2]
    return max(_COLUMN_PX, round(int(width) * LINE_HEIGHT_PX / int(height)))


def _prepare(crop: NDArray[np.uint8]) -> Array:
    import cv2

    width = _scaled_width(crop)
    scaled = cv2.resize(crop, (width, LINE_HEIGHT_PX), interpolation=cv2.INTER_LINEAR)
    padded_width = -(-width // _WIDTH_STEP_PX) * _WIDTH_STEP_PX
    batch = np.zeros((1, 3, LINE_HEIGHT_PX, padded_width), np.float32)
    batch[0, :, :, :width] = scaled.transpose(2, 0, 1) / np.float32(127.5) - np.float32(1.0)
    return batch


def _keep_best_class(model: Any) -> Any:
    """Let the network return the best class and its probability for each column, not all 18,710 of them."""
    import openvino
    from openvino import opset13

    probabilities = model.outputs[0].get_node().input_value(0)
    best = opset13.topk(probabilities, opset13.constant(np.int64(1)), 2, "max", "none", index_element_type="i32")
    return openvino.Model([best.output(0), best.output(1)], model.get_parameters(), "recogniser")
