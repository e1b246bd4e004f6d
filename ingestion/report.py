"""What came of a run: every listed source is accounted for, from the manifests that the stages left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel, Field

from ingestion.job import JobStatus, Reason, SourceRef
from ingestion.manifest import Manifests
from ocr2_core.ledger import LedgerCounts

EXIT_OK = 0
EXIT_PARTIAL = 3
EXIT_REFUSED = 4

UNACCOUNTED = "unaccounted"


class DocumentOutcome(BaseModel):
    """How one document of a run ended; `status` is a JobStatus or "unaccounted"."""

    source: str
    status: str
    reason: Reason | None = None
    counts: LedgerCounts | None = None
    chunk_count: int | None = None


class RunSummary(BaseModel):
    """The outcome of every source of a run."""

    run_id: str
    documents: list[DocumentOutcome] = Field(default_factory=list)

    def count(self, status: str) -> int:
        return Counter(document.status for document in self.documents)[status]

    @property
    def is_complete(self) -> bool:
        """Whether each listed source ended in a known way."""
        return self.count(UNACCOUNTED) == 0

    @property
    def exit_code(self) -> int:
        """0 all published or unchanged, 4 nothing but refused input, 3 anything between."""
        fine = self.count(JobStatus.PUBLISHED) + self.count(JobStatus.UNCHANGED)
        if fine == len(self.documents):
            return EXIT_OK
        return EXIT_REFUSED if self.count(JobStatus.QUARANTINED) == len(self.documents) else EXIT_PARTIAL

    def failure(self, *, fail_on_quarantine: bool = False) -> str | None:
        """Why the run as a whole has to be called failed, or None.

        It has when a document is unaccounted for (an outage outlasted its retries, or a fault), or when every document
        was quarantined; with `fail_on_quarantine`, when any was.
        """
        lost = [document.source for document in self.documents if document.status == UNACCOUNTED]
        if lost:
            return f"{len(lost)} of {len(self.documents)} documents did not end: {_first(lost)}"
        refused = [document.source for document in self.documents if document.status == JobStatus.QUARANTINED]
        if refused and (fail_on_quarantine or len(refused) == len(self.documents)):
            return f"{len(refused)} of {len(self.documents)} documents are quarantined: {_first(refused)}"
        return None

    def lines(self) -> list[str]:
        """The summary for a log: one line in all, then one a document."""
        words = [*JobStatus, UNACCOUNTED]
        totals = ", ".join(f"{self.count(word)} {word}" for word in words if self.count(word))
        return [f"{len(self.documents)} documents: {totals or 'nothing to do'}", *map(_line, self.documents)]


def summarise(manifests: Manifests, sources: Sequence[SourceRef], run_id: str) -> RunSummary:
    """Reconcile the listed sources with the manifests: only an attempt of this very run counts."""
    outcomes = []
    for source in sources:
        attempt = manifests.read(source.bucket, source.key).last_attempt
        if attempt is None or attempt.run_id != run_id:
            outcomes.append(DocumentOutcome(source=source.uri, status=UNACCOUNTED))
            continue
        outcomes.append(
            DocumentOutcome(
                source=source.uri,
                status=attempt.status.value,
                reason=attempt.reason,
                counts=attempt.counts,
                chunk_count=attempt.chunk_count,
            )
        )
    return RunSummary(run_id=run_id, documents=outcomes)


def _line(document: DocumentOutcome) -> str:
    parts = [f"  {document.status:<12} {document.source}"]
    if document.counts is not None:
        counts = document.counts
        pages = [f"{getattr(counts, word)} {word}" for word in ("ok", "repaired", "blank", "failed")]
        parts.append(f"{counts.page_count} pages ({', '.join(part for part in pages if part[0] != '0')})")
    if document.chunk_count is not None:
        parts.append(f"{document.chunk_count} chunks")
    if document.reason is not None:
        parts.append(str(document.reason))
    return "  ".join(parts)


def _first(sources: list[str], most: int = 5) -> str:
    return ", ".join(sources[:most]) + (f" and {len(sources) - most} more" if len(sources) > most else "")
