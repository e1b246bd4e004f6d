"""Makes reading engines by name."""

from __future__ import annotations

from typing import Any

from ocr2_core.engine import Engine
from ocr2_core.errors import EngineError

ENGINE_NAMES = ("auto", "rapidocr", "text_layer", "ocr2", "served")


def create_engine(name: str, **options: Any) -> Engine:
    """The engine called `name`; `options` are its constructor's. No model is loaded yet.

    `auto` is the best engine for this machine. Raises EngineError for an unknown name or option.
    """
    try:
        if name in ("auto", "rapidocr"):
            from ocr2_core.rapidocr_engine import RapidOcrEngine

            return RapidOcrEngine(**options)
        if name == "text_layer":
            from ocr2_core.text_layer_engine import TextLayerEngine

            return TextLayerEngine(**options)
        if name == "ocr2":
            from ocr2_core.ocr2.engine import Ocr2Engine

            return Ocr2Engine(**options)
        if name == "served":
            from ocr2_core.served_engine import ServedEngine

            return ServedEngine(**options)
    except TypeError as error:
        raise EngineError(f"The engine {name!r} does not take these options: {error}") from error
    raise EngineError(f"Unknown engine {name!r}. Engines: {', '.join(ENGINE_NAMES)}.")
