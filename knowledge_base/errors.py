"""Errors of knowledge_base: what may pass by itself (worth a retry) and what a person has to settle."""

from __future__ import annotations


class KnowledgeBaseError(Exception):
    """Base of all errors raised by knowledge_base; as such: wrong input or a refusal that a retry will not cure."""


class KnowledgeBaseUnavailable(KnowledgeBaseError):
    """The store cannot be reached now: network, timeout, overload, or another process holds the local store.

    Worth a retry; `retry_after_s` is the server's own wish where it gave one.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type[KnowledgeBaseUnavailable], tuple[str, float | None]]:
        return type(self), (str(self), self.retry_after_s)


class EmbeddedIndexError(KnowledgeBaseError):
    """The embedded index cannot read or write its files."""


class CollectionMissing(KnowledgeBaseError):
    """No collection stands behind the alias: nothing has been loaded yet, or the alias is misspelt."""


class CollectionMismatch(KnowledgeBaseError):
    """The collection was filled with other vectors (model, prompts, size, BM25 settings) than those offered now."""


class LoadIncomplete(KnowledgeBaseError):
    """The points counted after writing are not those that were sent; nothing of the old revision was deleted."""


class ModelNotFound(KnowledgeBaseError):
    """The embedding model is neither a local folder, nor cached, nor downloadable."""


class QuestionSetRefused(KnowledgeBaseError):
    """A question set cannot be read; the message names the file and the line."""
