"""Errors of ocr2_core: what is wrong with a file (never worth a retry) and what went wrong in reading it."""

from __future__ import annotations


class OcrError(Exception):
    """Base of all errors raised by ocr2_core."""


class SourceRefused(OcrError):
    """The file itself cannot be read, today or tomorrow; trying again will not help.

    `code` is a stable word for programs (`encrypted`, `damaged`, …); `cause` says what is wrong and `remedy` what the
    user can try. Say which document it was when you catch it: this error knows the bytes only.
    """

    def __init__(self, code: str, cause: str, remedy: str) -> None:
        super().__init__(f"{cause} {remedy}")
        self.code = code
        self.cause = cause
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[SourceRefused], tuple[str, str, str]]:
        return type(self), (self.code, self.cause, self.remedy)


class EngineError(OcrError):
    """An engine cannot run at all (model missing, wrong settings, out of memory); pages are not to blame."""


class EngineUnavailable(EngineError):
    """The service behind an engine does not answer or is overloaded. Try again later."""


class LedgerMismatch(OcrError):
    """The ledger does not account for every page of the file exactly once. Page numbers are 1-based."""

    def __init__(self, page_count: int, *, missing: list[int], doubled: list[int], beyond: list[int]) -> None:
        parts = [
            f"{word} {_first_pages(pages)}"
            for word, pages in (("missing", missing), ("doubled", doubled), ("beyond the end", beyond))
            if pages
        ]
        super().__init__(f"the ledger does not match the file's {page_count} pages: {'; '.join(parts)}")
        self.page_count = page_count
        self.missing = missing
        self.doubled = doubled
        self.beyond = beyond


def _first_pages(pages: list[int], most: int = 10) -> str:
    shown = ", ".join(str(page) for page in pages[:most])
    return shown if len(pages) <= most else f"{shown} and {len(pages) - most} more"
