"""Finds the layout regions of a page: rapid-layout's bundled detector (PicoDet trained on CDLA)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ocr2_core.blocks import BlockLabel
from ocr2_core.geometry import BBoxNorm, from_pixels
from ocr2_core.model_runtime import Model, load_model

MODEL_NAME = "layout_cdla.onnx"
_INPUT_SIZE_PX = (800, 608)  # height, width

_LABELS = {
    "text": BlockLabel.TEXT,
    "title": BlockLabel.SECTION_HEADER,
    "figure": BlockLabel.PICTURE,
    "figure_caption": BlockLabel.CAPTION,
    "table": BlockLabel.TABLE,
    "table_caption": BlockLabel.CAPTION,
    "header": BlockLabel.PAGE_HEADER,
    "footer": BlockLabel.PAGE_FOOTER,
    "reference": BlockLabel.TEXT,
    "equation": BlockLabel.FORMULA,
}


@dataclass(frozen=True, slots=True)
class LayoutRegion:
    """One region the detector sees; regions may overlap and text may lie outside all of them."""

    label: BlockLabel
    bbox_norm: BBoxNorm
    score: float


class LayoutDetector:
    """Runs the detector with rapid-layout's own pre- and post-processing."""

    def __init__(
        self,
        *,
        least_score: float = 0.4,
        thread_count: int = 1,
        cache_dir: Path | None = None,
        runtime: str = "auto",
    ) -> None:
        from rapid_layout.model_handler.pp.post_process import PPPostProcess
        from rapid_layout.model_handler.pp.pre_process import PPPreProcess

        self._model: Model = load_model(model_path(), thread_count=thread_count, cache_dir=cache_dir, runtime=runtime)
        names = self._model.metadata["character"].splitlines()
        self._prepare = PPPreProcess(_INPUT_SIZE_PX)
        self._boxes = PPPostProcess(names, least_score, 0.5)

    @property
    def runtime(self) -> str:
        return self._model.runtime

    def __call__(self, image_bgr: NDArray[np.uint8]) -> list[LayoutRegion]:
        """Regions on an upright page image (height_px, width_px, 3), the most certain first."""
        height_px, width_px = image_bgr.shape[:2]
        prepared = np.ascontiguousarray(self._prepare(image_bgr), np.float32)
        outputs = self._model(prepared)
        boxes, scores, names = self._boxes((height_px, width_px), prepared, outputs)
        regions = [
            LayoutRegion(
                _LABELS[name], from_pixels((box[0], box[1], box[2], box[3]), width_px, height_px), float(score)
            )
            for box, score, name in zip(boxes, scores, names, strict=True)
        ]
        return sorted(regions, key=lambda region: -region.score)


def model_path() -> Path:
    return Path(str(files("rapid_layout"))) / "models" / MODEL_NAME
