"""Runs the ONNX models on the CPU: OpenVINO where it is installed and works, else onnxruntime."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ocr2_core.errors import EngineError

logger = logging.getLogger(__name__)

DEFAULT_CACHE_DIR = Path.home() / ".cache" / "ocr2kb"
_MOST_THREADS = 8

Array = NDArray[Any]


class Model(Protocol):
    """One loaded network with one input."""

    runtime: str
    metadata: dict[str, str]

    def __call__(self, batch: Array) -> list[Array]:
        """All outputs for one input batch."""
        ...

    def map(self, batches: Iterable[Array]) -> list[list[Array]]:
        """The outputs for each batch, in order; batches may run at the same time."""
        ...


def usable_cpu_count() -> int:
    """CPUs this process may run on (containers and taskset count), at most 8: more threads no longer help one page."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        count = os.cpu_count() or 1
    return max(1, min(count, _MOST_THREADS))


def release_free_memory() -> None:
    """Give freed memory back to the system: page after page, glibc would keep some 200 MB of it."""
    with contextlib.suppress(OSError, AttributeError):  # other C libraries do without
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def file_digest(path: Path) -> str:
    """First 16 hex digits of the file's SHA-256: names a model file in fingerprints."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def load_model(
    path: Path,
    *,
    thread_count: int,
    cache_dir: Path | None,
    runtime: str = "auto",
    parallel: bool = False,
    rewrite: Callable[[Any], Any] | None = None,
) -> Model:
    """Load an ONNX file.

    `runtime` is `auto` (OpenVINO, else onnxruntime with a logged warning), `openvino` or `onnxruntime`. With
    `parallel`, `map` runs up to `thread_count` batches at once on one thread each; without, each call uses all
    threads. `rewrite` changes the graph before compiling (OpenVINO only, so callers must understand the outputs of
    both). Raises EngineError when the file is missing or no runtime can load it.
    """
    if not path.is_file():
        raise EngineError(f"The model file {path.name} is missing. Install the `embedded` extra again.")
    if runtime not in ("auto", "openvino", "onnxruntime"):
        raise EngineError(f"Unknown model runtime {runtime!r}: use auto, openvino or onnxruntime.")
    causes = []
    if runtime in ("auto", "openvino"):
        try:
            return _OpenVinoModel(path, thread_count, cache_dir, parallel, rewrite)
        except Exception as error:  # its errors are bare RuntimeErrors; the other runtime may still do
            causes.append(f"openvino: {_first_line(error)}")
            if runtime == "auto":
                logger.warning(
                    "OpenVINO cannot run %s (%s); using onnxruntime, which is slower.", path.name, causes[-1]
                )
    if runtime in ("auto", "onnxruntime"):
        try:
            return _OnnxRuntimeModel(path, thread_count)
        except Exception as error:
            causes.append(f"onnxruntime: {_first_line(error)}")
    raise EngineError(f"No runtime can load {path.name} ({'; '.join(causes)}). Install the `embedded` extra.")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"


class _OpenVinoModel:
    """Compiled with dynamic shapes: one copy of the weights serves every shape, which keeps memory flat."""

    runtime = "openvino"

    def __init__(
        self,
        path: Path,
        thread_count: int,
        cache_dir: Path | None,
        parallel: bool,
        rewrite: Callable[[Any], Any] | None,
    ) -> None:
        import openvino

        core = openvino.Core()
        if cache_dir is not None:
            try:
                cache_dir.mkdir(parents=True, exist_ok=True)
                core.set_property({"CACHE_DIR": str(cache_dir)})
            except OSError as error:
                logger.warning("No cache of compiled models in %s: %s", cache_dir, error)
        model = core.read_model(path)
        self.metadata = _openvino_metadata(model)
        if rewrite is not None:
            model = rewrite(model)
        streams = thread_count if parallel else 1
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": thread_count,
            "NUM_STREAMS": streams,
            "ENABLE_CPU_PINNING": False,
        }
        if "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            settings["INFERENCE_PRECISION_HINT"] = "bf16"
        compiled = core.compile_model(model, "CPU", settings)
        self._output_count = len(compiled.outputs)
        self._request = compiled.create_infer_request()
        self._queue = openvino.AsyncInferQueue(compiled, streams) if streams > 1 else None

    def __call__(self, batch: Array) -> list[Array]:
        self._request.infer([batch], share_inputs=True)
        return self._outputs(self._request)

    def map(self, batches: Iterable[Array]) -> list[list[Array]]:
        if self._queue is None:
            return [self(batch) for batch in batches]
        results: dict[int, list[Array]] = {}

        def keep(request: Any, index: int) -> None:
            results[index] = self._outputs(request)

        self._queue.set_callback(keep)
        for index, batch in enumerate(batches):
            self._queue.start_async([batch], userdata=index)
        self._queue.wait_all()
        return [results[index] for index in sorted(results)]

    def _outputs(self, request: Any) -> list[Array]:
        # copies, because the next run writes into the same memory
        return [np.array(request.get_output_tensor(index).data) for index in range(self._output_count)]


def _openvino_metadata(model: Any) -> dict[str, str]:
    info = model.get_rt_info()
    if "framework" not in info:
        return {}
    return {key: str(value.value) for key, value in info["framework"].items()}


class _OnnxRuntimeModel:
    runtime = "onnxruntime"

    def __init__(self, path: Path, thread_count: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = thread_count
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._input_name = self._session.get_inputs()[0].name
        self.metadata = dict(self._session.get_modelmeta().custom_metadata_map)

    def __call__(self, batch: Array) -> list[Array]:
        return [np.asarray(output) for output in self._session.run(None, {self._input_name: batch})]

    def map(self, batches: Iterable[Array]) -> list[list[Array]]:
        return [self(batch) for batch in batches]
