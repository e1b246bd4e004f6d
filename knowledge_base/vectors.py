"""Both vectors of chunks, made from the same text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from knowledge_base.chunks import Chunk
from knowledge_base.sparse import SparseEncoder, SparseVector

if TYPE_CHECKING:
    from knowledge_base.embedding import Embedder


def encode_chunks(
    chunks: Sequence[Chunk], embedder: Embedder, sparse_encoder: SparseEncoder
) -> tuple[NDArray[np.float32], list[SparseVector]]:
    """Dense (n, dimension) and sparse vectors of the chunks' `embedded_text`, in chunk order."""
    dense = embedder.encode_passages([chunk.embedded_text for chunk in chunks])
    return dense, [sparse_encoder.encode_passage(chunk.embedded_text, chunk.language) for chunk in chunks]
