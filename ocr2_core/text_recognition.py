"""Reads the text of cut-out lines: PP-OCRv6's recogniser (CTC), as bundled with rapidocr."""

from __future__ import annotations

import functools
from collections.abc import Sequence
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
_SAMPLE_LINES = 3
_FIRST_IDEOGRAPH = 0x2E80
_COLUMN_PX = 8  # the network shrinks the width by this much


@dataclass(frozen=True, slots=True)
class RecognisedLine:
    """What one crop says. `centres` are the characters' middles as shares (0..1) of the crop's width."""

    text: str
    confidence: float
    centres: tuple[float, ...] = ()
    character_confidences: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A line, and whether an ideograph won somewhere that was not among the classes decoded."""

    line: RecognisedLine
    has_ideographs: bool


class TextRecogniser:
    """CRNN-style recognition with greedy CTC decoding (Graves et al., 2006).

    Lines are padded to widths in steps of 160 px, so that the runtime meets few shapes, and run one by one: on CPUs
    batches of this network are slower than single lines (they fall out of the cache), and a line's result cannot
    depend on its neighbours.

    Most of the network's 18,710 classes are ideographs. Where OpenVINO runs it, lines are first decoded over the others
    alone, which saves a sixth of the time; the network also tells where an ideograph would have won, and such lines are
    read again over all classes. The decoded text is the same as over all classes.
    """

    def __init__(self, *, thread_count: int = 1, cache_dir: Path | None = None, runtime: str = "auto") -> None:
        from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode

        self._load = functools.partial(
            load_model, model_path(), thread_count=thread_count, cache_dir=cache_dir, runtime=runtime, parallel=True
        )
        self._common_classes: NDArray[np.int64] | None = None
        self._model: Model = self._load(rewrite=self._keep_common_classes)
        dictionary = self._model.metadata.get("character", "").splitlines()
        if not dictionary:
            raise EngineError(f"The model file {MODEL_NAME} carries no dictionary. Install the `embedded` extra again.")
        self._characters: list[str] = CTCLabelDecode(character=dictionary).character
        self._full_model: Model | None = None if self._common_classes is not None else self._model

    @property
    def runtime(self) -> str:
        return self._model.runtime

    def __call__(self, crops_bgr: Sequence[NDArray[np.uint8]]) -> list[RecognisedLine]:
        """One result for each crop (height_px, width_px, 3), in the same order."""
        # sorted by width, the runtime changes shape as seldom as possible
        order = sorted(range(len(crops_bgr)), key=lambda index: _width(crops_bgr[index]))
        results: dict[int, _Decoded] = {}
        if self._common_classes is not None:
            sample, rest = order[-_SAMPLE_LINES:], order[:-_SAMPLE_LINES]
            results.update(self._read(crops_bgr, sample))
            if sum(results[index].has_ideographs for index in sample) * 2 <= len(sample):
                results.update(self._read(crops_bgr, rest))
        again = _lines_to_read_again(results, order)
        if again:
            if self._full_model is None:
                self._full_model = self._load(rewrite=_keep_best_class)
            results.update(self._read(crops_bgr, again, self._full_model))
        return [results[index].line for index in range(len(crops_bgr))]

    def _read(
        self, crops: Sequence[NDArray[np.uint8]], order: Sequence[int], model: Model | None = None
    ) -> dict[int, _Decoded]:
        outputs = (model or self._model).map(_prepare(crops[index], _width(crops[index])) for index in order)
        return {index: self._decode(output, _width(crops[index])) for index, output in zip(order, outputs, strict=True)}

    def _decode(self, outputs: list[Array], width_px: int) -> _Decoded:
        if len(outputs) == 1:
            classes, probabilities = outputs[0][0].argmax(axis=1), outputs[0][0].max(axis=1)
        else:
            probabilities, classes = outputs[0][0, :, 0], outputs[1][0, :, 0]
        has_ideographs = False
        if len(outputs) == 4:
            has_ideographs = bool((outputs[2] > outputs[3]).any())
            assert self._common_classes is not None
            classes = self._common_classes[classes]
        starts = np.ones(len(classes), bool)
        starts[1:] = classes[1:] != classes[:-1]
        runs = np.flatnonzero(starts)
        ends = np.append(runs[1:], len(classes))
        characters, centres, confidences = [], [], []
        for begin, end in zip(runs, ends, strict=True):
            if classes[begin] == 0:
                continue
            characters.append(self._characters[int(classes[begin])])
            centres.append(min(1.0, float(begin + end) / 2 * _COLUMN_PX / width_px))
            confidences.append(float(probabilities[begin:end].max()))
        if not characters:
            return _Decoded(RecognisedLine("", 0.0), has_ideographs)
        confidence = min(1.0, float(np.mean(confidences)))
        line = RecognisedLine("".join(characters), confidence, tuple(centres), tuple(confidences))
        return _Decoded(line, has_ideographs)

    def _keep_common_classes(self, model: Any) -> Any:
        """Outputs a column: best common class's probability, its place among them, best logit of all, and of them."""
        import openvino
        from openvino import opset13

        dictionary = str(model.get_rt_info()["framework"]["character"].value).splitlines()
        inside = [index + 1 for index, text in enumerate(dictionary) if not any(map(_is_wide, text))]
        self._common_classes = np.asarray([0, *inside, len(dictionary) + 1], np.int64)  # blank first, space last
        logits = model.outputs[0].get_node().input_value(0).get_node().input_value(0)
        common = opset13.gather(logits, opset13.constant(self._common_classes), opset13.constant(np.int64(2)))
        probabilities = opset13.softmax(common.output(0), 2)
        best = opset13.topk(probabilities, opset13.constant(np.int64(1)), 2, "max", "none", index_element_type="i32")
        axis = opset13.constant(np.array([2], np.int64))
        # full-width signs do not make a line worth reading again
        others = np.zeros((1, 1, len(dictionary) + 2), np.float32)
        others[0, 0, [index + 1 for index, text in enumerate(dictionary) if any(map(_is_wide_sign, text))]] = -1e4
        outputs = [
            best.output(0),
            best.output(1),
            opset13.reduce_max(opset13.add(logits, opset13.constant(others)), axis, True).output(0),
            opset13.reduce_max(common.output(0), axis, True).output(0),
        ]
        return openvino.Model(outputs, model.get_parameters(), "recogniser_common")


def _lines_to_read_again(results: dict[int, _Decoded], order: Sequence[int]) -> list[int]:
    """Lines not read yet and lines with ideographs; where lone signs only are left, they are none (`+`, not `十`)."""
    found = [index for index in order if index not in results or results[index].has_ideographs]
    return [] if all(index in results and _is_sign(results[index].line) for index in found) else found


def _is_sign(line: RecognisedLine) -> bool:
    return len(line.text) == 1 and line.confidence > 0.6


def _is_wide(character: str) -> bool:
    return ord(character) >= _FIRST_IDEOGRAPH


def _is_wide_sign(character: str) -> bool:
    return "\u3000" <= character <= "\u303f" or "\uff00" <= character <= "\uffef"


def model_path() -> Path:
    return Path(str(files("rapidocr"))) / "models" / MODEL_NAME


def _width(crop: NDArray[np.uint8]) -> int:
    """Width of the crop as the network sees it, 48 px high. (Stretching lines does not help: LOG.md.)"""
    height, width = crop.shape[:2]
    return max(_COLUMN_PX, round(int(width) * LINE_HEIGHT_PX / int(height)))


def _prepare(crop: NDArray[np.uint8], width: int) -> Array:
    import cv2

    scaled = cv2.resize(crop, (width, LINE_HEIGHT_PX), interpolation=cv2.INTER_LINEAR)
    padded_width = -(-width // _WIDTH_STEP_PX) * _WIDTH_STEP_PX
    batch = np.zeros((1, 3, LINE_HEIGHT_PX, padded_width), np.float32)
    batch[0, :, :, :width] = scaled.transpose(2, 0, 1) / np.float32(127.5) - np.float32(1.0)
    return batch


def _keep_best_class(model: Any) -> Any:
    """Outputs a column: the best class's probability and the class, not all 18,710 probabilities."""
    import openvino
    from openvino import opset13

    probabilities = model.outputs[0].get_node().input_value(0)
    best = opset13.topk(probabilities, opset13.constant(np.int64(1)), 2, "max", "none", index_element_type="i32")
    return openvino.Model([best.output(0), best.output(1)], model.get_parameters(), "recogniser")
