"""Finds the printed lines of a page image: PP-OCRv6's detector (DB), as bundled with rapidocr."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ocr2_core.model_runtime import Model, load_model

MODEL_NAME = "PP-OCRv6_det_small.onnx"


@dataclass(frozen=True, slots=True)
class DetectedLine:
    """A box around one run of text: four corners in pixels, (4, 2), from the top left clockwise."""

    corners_px: NDArray[np.float32]
    score: float

    @property
    def bbox_px(self) -> tuple[float, float, float, float]:
        x0, y0 = self.corners_px.min(axis=0)
        x1, y1 = self.corners_px.max(axis=0)
        return float(x0), float(y0), float(x1), float(y1)


class TextDetector:
    """Differentiable binarisation (Liao et al., 2020) with rapidocr's own pre- and post-processing.

    `longest_side_px` is what the page is scaled down to; 1280 reads 8-point type on A4.
    """

    def __init__(
        self,
        *,
        longest_side_px: int = 1280,
        unclip_ratio: float = 1.6,
        thread_count: int = 1,
        cache_dir: Path | None = None,
        runtime: str = "auto",
    ) -> None:
        from rapidocr.ch_ppocr_det.utils import DBPostProcess, DetPreProcess

        self._prepare = DetPreProcess(longest_side_px, "max", mean=[0.5] * 3, std=[0.5] * 3)
        self._boxes = DBPostProcess(
            thresh=0.3,
            box_thresh=0.5,
            # the library stops silently at this many boxes; a dense page has a few hundred lines
            max_candidates=5000,
            unclip_ratio=unclip_ratio,
            score_mode="fast",
            use_dilation=True,
        )
        self._model: Model = load_model(model_path(), thread_count=thread_count, cache_dir=cache_dir, runtime=runtime)

    @property
    def runtime(self) -> str:
        return self._model.runtime

    def __call__(self, image_bgr: NDArray[np.uint8]) -> list[DetectedLine]:
        """Boxes on an image (height_px, width_px, 3), in no particular order."""
        resized = self._prepare.resize(image_bgr)
        if resized is None:
            return []
        # the library's own normalisation works in 64 bits, which takes as long as a fifth of the network
        batch = resized.transpose(2, 0, 1)[None].astype(np.float32) / np.float32(127.5) - np.float32(1.0)
        probabilities = self._model(np.ascontiguousarray(batch))[0]
        boxes, scores = self._boxes(probabilities, image_bgr.shape[:2])
        return [
            DetectedLine(np.asarray(box, np.float32), float(score)) for box, score in zip(boxes, scores, strict=True)
        ]


def model_path() -> Path:
    return Path(str(files("rapidocr"))) / "models" / MODEL_NAME
