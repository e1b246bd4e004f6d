"""Errors of the ingestion: what is worth a retry, what concerns one document only, and what is a wrong setting."""

from __future__ import annotations


class IngestionError(Exception):
    """Base of all errors raised by ingestion."""


class ServiceUnavailable(IngestionError):
    """A service does not answer or is overloaded. The documents are not to blame: try again later."""

    def __init__(self, service: str, cause: str, remedy: str) -> None:
        super().__init__(f"{service} is unavailable: {cause} {remedy}")
        self.service = service
        self.cause = cause
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[ServiceUnavailable], tuple[str, str, str]]:
        return type(self), (self.service, self.cause, self.remedy)


class AccessRefused(IngestionError):
    """A service answered and refused: wrong credentials or missing rights. A retry will not help."""


class SettingsError(IngestionError):
    """A setting is missing or wrong; the text names it."""


class ObjectMissing(IngestionError):
    """The object (or bucket) is not there."""

    def __init__(self, bucket: str, key: str) -> None:
        super().__init__(f"s3://{bucket}/{key} does not exist")
        self.bucket = bucket
        self.key = key

    def __reduce__(self) -> tuple[type[ObjectMissing], tuple[str, str]]:
        return type(self), (self.bucket, self.key)


class ObjectKeyRefused(IngestionError):
    """The object store does not accept this key (`..` segments, over 1,024 bytes, …)."""


class PathRefused(IngestionError):
    """A named path is not there, holds nothing that could be a manual, or would overwrite another one's object."""


class SourceStillThere(IngestionError):
    """A source that is to be deleted still has its object, so that a later run would ingest it again."""

    def __init__(self, bucket: str, key: str) -> None:
        super().__init__(
            f"s3://{bucket}/{key} is still in the bucket, and a later run would ingest it again. "
            "Delete the object first, or both with --with-object."
        )
        self.bucket = bucket
        self.key = key

    def __reduce__(self) -> tuple[type[SourceStillThere], tuple[str, str]]:
        return type(self), (self.bucket, self.key)


class AuditRefused(IngestionError):
    """An audit would delete so much that the bucket is more likely to be wrong than the knowledge base."""

    def __init__(self, bucket: str, deleted_count: int, published_count: int) -> None:
        super().__init__(
            f"{deleted_count} of {published_count} published sources have no object in s3://{bucket}. Nothing was "
            "changed. Check that this is the right bucket and that it is whole; if it is, use --force."
        )
        self.bucket = bucket
        self.deleted_count = deleted_count
        self.published_count = published_count

    def __reduce__(self) -> tuple[type[AuditRefused], tuple[str, int, int]]:
        return type(self), (self.bucket, self.deleted_count, self.published_count)


class SourceChanged(IngestionError):
    """The object is not the revision that was asked for."""

    def __init__(self, source: str) -> None:
        super().__init__(f"{source} is another revision than the one found. Ingest it again.")
        self.source = source

    def __reduce__(self) -> tuple[type[SourceChanged], tuple[str]]:
        return type(self), (self.source,)


class ReembeddingRefused(IngestionError):
    """The alias is not switched to the collection of the new model; the text says why, and nothing was changed."""


class QuestionsWithoutSources(IngestionError):
    """No source of a question set is in the knowledge base, so asking would measure nothing."""

    def __init__(self, sources: list[str]) -> None:
        named = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
        super().__init__(
            f"none of the question set's sources is in the knowledge base: {named}. "
            "Sources are written s3://bucket/key; `ocr2kb status` lists those that are published."
        )
        self.sources = sources

    def __reduce__(self) -> tuple[type[QuestionsWithoutSources], tuple[list[str]]]:
        return type(self), (self.sources,)


class DocumentRefused(IngestionError):
    """This document cannot be published as it is; the others are untouched.

    `code` is a stable word for programs, `stage` where it was found, `cause` what is wrong, `remedy` what to try.
    """

    def __init__(self, source: str, stage: str, code: str, cause: str, remedy: str) -> None:
        super().__init__(f"{source}: {cause} {remedy}")
        self.source = source
        self.stage = stage
        self.code = code
        self.cause = cause
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[DocumentRefused], tuple[str, str, str, str, str]]:
        return type(self), (self.source, self.stage, self.code, self.cause, self.remedy)


class ServiceStartError(IngestionError):
    """An embedded service did not start or does not answer; the text ends with the last lines of its log."""


class PortTaken(ServiceStartError):
    """The port asked for belongs to another program."""
