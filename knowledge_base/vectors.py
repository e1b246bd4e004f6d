"""Both vectors of chunks, made from the same text; dense ones that are known already are not made again."""

from __future__ import annotations

import hashlib
import io
import logging
import zipfile
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from knowledge_base.chunks import Chunk
from knowledge_base.sparse import SparseEncoder, SparseVector

if TYPE_CHECKING:
    from knowledge_base.embedding import Embedder

_DIGEST_BYTES = 16

logger = logging.getLogger(__name__)


class KnownVectors:
    """Dense vectors of one model by the text that they were made of."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, NDArray[np.float32]] = {}

    def __len__(self) -> int:
        return len(self._by_digest)

    def get(self, text: str) -> NDArray[np.float32] | None:
        """The text's vector, None where it is not known."""
        return self._by_digest.get(_digest(text))

    def add(self, texts: Iterable[str], vectors: Iterable[NDArray[np.float32]]) -> None:
        """Remember one vector a text."""
        for text, vector in zip(texts, vectors, strict=True):
            self._by_digest[_digest(text)] = vector

    def to_bytes(self) -> bytes:
        """As a NumPy archive: digests (n, 16) uint8 and vectors (n, dimension) float32."""
        digests = np.frombuffer(b"".join(self._by_digest), np.uint8).reshape(-1, _DIGEST_BYTES)
        buffer = io.BytesIO()
        np.savez(buffer, digests=digests, vectors=np.array(list(self._by_digest.values()), np.float32))
        return buffer.getvalue()

    def read(self, data: bytes, dimension: int) -> None:
        """Add what `to_bytes` wrote. Data that cannot be used are left out with a warning: they only save time."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                digests, vectors = archive["digests"], archive["vectors"]
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            logger.warning("stored vectors cannot be read and are made again: %s", error)
            return
        if digests.shape != (len(vectors), _DIGEST_BYTES) or vectors.shape != (len(digests), dimension):
            logger.warning("stored vectors of shape %s do not fit and are made again", vectors.shape)
            return
        for digest, vector in zip(digests, vectors, strict=True):
            self._by_digest[digest.tobytes()] = vector


def encode_chunks(
    chunks: Sequence[Chunk], embedder: Embedder, sparse_encoder: SparseEncoder, known: KnownVectors | None = None
) -> tuple[NDArray[np.float32], list[SparseVector]]:
    """Dense (n, dimension) and sparse vectors of the chunks' `embedded_text`, in chunk order.

    Texts whose vector is in `known` are not embedded again; the vectors of the others are added to it.
    """
    known = KnownVectors() if known is None else known
    texts = [chunk.embedded_text for chunk in chunks]
    unknown = [text for text in dict.fromkeys(texts) if known.get(text) is None]
    if unknown:
        known.add(unknown, embedder.encode_passages(unknown))
    dense = np.array([known.get(text) for text in texts], np.float32).reshape(len(texts), -1)
    return dense, [sparse_encoder.encode_passage(chunk.embedded_text, chunk.language) for chunk in chunks]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
