"""A second look at the best candidates: a cross-encoder reads question and passage together and orders them anew."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knowledge_base.errors import ModelNotFound

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

DEFAULT_CANDIDATES = 30


class Reranker:
    """Scores passages for a question by any sentence-transformers cross-encoder, loaded on first use.

    `model_path`: a folder or a hub name, such as BAAI/bge-reranker-v2-m3. `candidate_count`: how many hits of the
    search are scored; each costs one pass through the model.
    """

    def __init__(
        self,
        model_path: str | Path,
        *,
        candidate_count: int = DEFAULT_CANDIDATES,
        device: str | None = None,
        batch_size: int = 16,
    ) -> None:
        if candidate_count < 1:
            raise ValueError(f"a reranker needs at least one candidate, not {candidate_count}")
        self.model_path = str(model_path)
        self.candidate_count = candidate_count
        self.device = device
        self.batch_size = batch_size

    def scores(self, question: str, passages: Sequence[str]) -> list[float]:
        """One score a passage, larger for a better answer; the scale is the model's own.

        Raises ModelNotFound when the model is neither a folder, nor cached, nor downloadable.
        """
        if not passages:
            return []
        pairs = [(question, passage) for passage in passages]
        scored: Any = self._model.predict(pairs, batch_size=self.batch_size, show_progress_bar=False)
        return [float(score) for score in scored]

    @cached_property
    def _model(self) -> CrossEncoder:
        from sentence_transformers import CrossEncoder

        is_folder = Path(self.model_path).is_dir()
        try:
            model: CrossEncoder = CrossEncoder(
                self.model_path, num_labels=1, device=self.device, local_files_only=is_folder
            )
        except (OSError, ValueError) as error:
            raise ModelNotFound(
                f"cannot load the reranking model {self.model_path}: {error}. "
                "Give a cross-encoder's folder, or a hub name on a machine that reaches the hub."
            ) from error
        return model
