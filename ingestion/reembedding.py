"""Change the embedding model without reading a page again: a collection beside the live one, checked, then switched.

Every published source is cut for the new model from its stored document and loaded into a collection of its own. What
is there already is not made again, so a run that died goes on where it stopped, and going back to a model whose
collection was kept takes seconds. Readers see the old collection until the alias is switched, in one request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from ingestion.errors import DocumentRefused, IngestionError, ReembeddingRefused, ServiceUnavailable
from ingestion.evaluation import COMPARED_METRIC, evaluate_collection, make_questions
from ingestion.job import Job, JobStatus, SourceRef
from ingestion.loading import prepare, put
from ingestion.manifest import Attempt, Manifest, PublishedRevision
from ingestion.plan import index_fingerprints
from ingestion.settings import Settings
from ingestion.stages import chunk
from ingestion.workspace import Workspace
from knowledge_base.evaluation import Score, difference
from ocr2_core.errors import OcrError

if TYPE_CHECKING:
    from knowledge_base.questions import Question

DEFAULT_MOST_LOSS = 0.02
MOST_QUESTIONS = 300
_MOST_ROUNDS = 5

logger = logging.getLogger(__name__)

OnSource = Callable[[str, int, int], None]
"""Called before each source: its address, its number from 1, how many there are."""


class SearchCheck(BaseModel):
    """Hybrid search before and after, on the same questions: `change` is the new mean minus the old."""

    metric: str = COMPARED_METRIC
    question_count: int
    before: Score
    after: Score
    change: Score


class ReembeddingReport(BaseModel):
    """What was done. `failed`: source → why it is not in the new collection; with any the alias was not switched."""

    model: str
    collection: str
    replaced: str | None
    source_count: int
    point_count: int
    is_switched: bool
    check: SearchCheck | None = None
    failed: dict[str, str] = Field(default_factory=dict)

    def lines(self) -> list[str]:
        """The report for people."""
        lines = [f"{self.collection} holds {self.point_count} points of {self.source_count} sources by {self.model}"]
        if self.check is not None:
            lines.append(
                f"{self.check.metric} of hybrid search on {self.check.question_count} questions: "
                f"{self.check.before} before, {self.check.after} now, change {self.check.change}"
            )
        lines += [f"failed: {source}: {cause}" for source, cause in self.failed.items()]
        if self.is_switched:
            lines.append(f"readers see {self.collection}; {self.replaced} is kept")
            lines.append(
                f"set OCR2KB_EMBEDDING_MODEL to this model ({self.model}) for everything that runs from now on"
            )
        else:
            lines.append(f"readers still see {self.replaced}")
        return lines


def settings_for(settings: Settings, model: str, max_chunk_tokens: int | None = None) -> Settings:
    """The settings with another embedding model; its chunks are as long as it takes, or `max_chunk_tokens`."""
    from knowledge_base.embedding import PACKAGED_MODEL

    name = None if model == PACKAGED_MODEL else model
    return settings.model_copy(update={"embedding_model": name, "max_chunk_tokens": max_chunk_tokens})


def question_set(workspace: Workspace, path: Path | None = None) -> list[Question]:
    """The questions of a file, or those that the published manuals make, evenly thinned to `MOST_QUESTIONS`."""
    from knowledge_base.questions import read_questions

    if path is not None:
        return read_questions(path)
    made = make_questions(workspace)
    step = max(1.0, len(made) / MOST_QUESTIONS)
    return [made[int(number * step)] for number in range(min(len(made), MOST_QUESTIONS))]


def reembed(
    workspace: Workspace,
    new: Workspace,
    *,
    run_id: str,
    questions: Sequence[Question] = (),
    most_loss: float = DEFAULT_MOST_LOSS,
    is_switching: bool = True,
    on_source: OnSource | None = None,
) -> ReembeddingReport:
    """Fill a collection by the model of `new` and point the alias to it.

    `workspace` and `new` differ in the embedding model and chunk settings only. Sources that are published while this
    runs are loaded in another round. With `questions`, hybrid search must not lose more than `most_loss` of recall@5.
    Several tenants in one collection: call it for each with `is_switching` False, and for the last one with True.

    Raises ReembeddingRefused before the switch when search got worse, or when the live collection holds sources that
    the new one lacks; ServiceUnavailable for an outage. A source that cannot be loaded stops no other, but the switch.
    """
    from knowledge_base.generations import ensure_target, live_collection, switch_alias

    with new.open_knowledge_base() as knowledge_base:
        target = ensure_target(knowledge_base, new.embedder, new.sparse_encoder)
        replaced = live_collection(knowledge_base)
    if target == replaced:
        raise ReembeddingRefused(f"{target} is live and holds vectors of {new.embedder.model_name} already")
    loaded: dict[str, Job] = {}
    failed: dict[str, str] = {}
    _catch_up(workspace, new, target, run_id, loaded, failed, on_source)
    published = {manifest.uri: manifest for manifest in _published(workspace)}
    with new.open_knowledge_base(target) as knowledge_base:
        for chunk_set in knowledge_base.census(tenant=new.settings.tenant):
            if chunk_set.source not in published:
                knowledge_base.delete_source(chunk_set.source, tenant=new.settings.tenant)
        point_count = knowledge_base.count(tenant=new.settings.tenant)
    check = _check(workspace, new, target, questions) if questions and replaced is not None and not failed else None
    report = ReembeddingReport(
        model=new.embedder.model_name,
        collection=target,
        replaced=replaced,
        source_count=len(loaded),
        point_count=point_count,
        is_switched=False,
        check=check,
        failed=failed,
    )
    if failed or not is_switching:
        return report
    if check is not None and check.change.mean < -most_loss:
        raise ReembeddingRefused(
            f"{check.metric} of hybrid search fell from {check.before} to {check.after} on {check.question_count} "
            f"questions, by more than {most_loss}. {target} is kept, readers still see {replaced}."
        )
    _refuse_missing_sources(new, target, replaced)
    with new.open_knowledge_base() as knowledge_base:
        switch_alias(knowledge_base, target)
    # what was published between the last look and the switch
    _catch_up(workspace, new, target, run_id, loaded, failed, on_source)
    for uri, job in loaded.items():
        _record(workspace, uri, job)
    return report.model_copy(update={"is_switched": True, "source_count": len(loaded)})


def _catch_up(
    workspace: Workspace,
    new: Workspace,
    target: str,
    run_id: str,
    loaded: dict[str, Job],
    failed: dict[str, str],
    on_source: OnSource | None,
) -> None:
    """Load what is published and not yet in the target, until nothing new was published meanwhile."""
    for _ in range(_MOST_ROUNDS):
        waiting = [
            manifest
            for manifest in _published(workspace)
            if manifest.uri not in failed and not _is_current(manifest, loaded.get(manifest.uri))
        ]
        if not waiting:
            return
        _load_all(new, waiting, target, run_id, loaded, failed, on_source)


def _published(workspace: Workspace) -> list[Manifest]:
    manifests = [manifest for manifest in workspace.manifests.all() if manifest.published is not None]
    return sorted(manifests, key=lambda manifest: manifest.uri)


def _is_current(manifest: Manifest, job: Job | None) -> bool:
    published = manifest.published
    assert published is not None
    return job is not None and (job.revision, job.fingerprints.structure) == (
        published.revision,
        published.fingerprints.structure,
    )


def _load_all(
    new: Workspace,
    manifests: Iterable[Manifest],
    target: str,
    run_id: str,
    loaded: dict[str, Job],
    failed: dict[str, str],
    on_source: OnSource | None,
) -> None:
    manifests = list(manifests)
    for number, manifest in enumerate(manifests, start=1):
        if on_source is not None:
            on_source(manifest.uri, number, len(manifests))
        try:
            loaded[manifest.uri] = _load_one(new, manifest, target, run_id)
        except ServiceUnavailable:
            raise
        except (DocumentRefused, IngestionError, OcrError) as error:
            logger.error("%s: %s", manifest.uri, error)
            failed[manifest.uri] = str(error)


def _load_one(new: Workspace, manifest: Manifest, target: str, run_id: str) -> Job:
    published = manifest.published
    assert published is not None
    job = Job(
        source=SourceRef(
            bucket=manifest.bucket, key=manifest.key, etag=published.etag, size_bytes=published.size_bytes
        ),
        run_id=run_id,
        fingerprints=index_fingerprints(new, published.fingerprints.ocr, published.fingerprints.structure),
        revision=published.revision,
        page_count=published.counts.page_count,
        counts=published.counts,
        status=published.status,
    )
    job = chunk(new, job)
    prepared = prepare(new, job)
    put(new, prepared, target)
    return job.having(title=prepared.revision.title)


def _check(workspace: Workspace, new: Workspace, target: str, questions: Sequence[Question]) -> SearchCheck:
    reports = []
    for side, collection in ((workspace, None), (new, target)):
        with side.open_knowledge_base(collection) as knowledge_base:
            reports.append(evaluate_collection(side, knowledge_base, questions))
    before, after = (next(run for run in report.runs if run.name == "hybrid") for report in reports)
    return SearchCheck(
        question_count=len(questions),
        before=before.scores[COMPARED_METRIC],
        after=after.scores[COMPARED_METRIC],
        change=difference(after, before, COMPARED_METRIC),
    )


def _refuse_missing_sources(new: Workspace, target: str, replaced: str | None) -> None:
    """Other tenants' sources, or other artifact buckets', would vanish with the switch."""
    if replaced is None:
        return
    with new.open_knowledge_base(target) as knowledge_base:
        there = knowledge_base.sources()
    with new.open_knowledge_base(replaced) as knowledge_base:
        missing = sorted(knowledge_base.sources() - there)
    if missing:
        tenant, source = missing[0]
        raise ReembeddingRefused(
            f"{replaced} holds {len(missing)} sources that {target} lacks, such as {source} of tenant {tenant!r}. Run "
            "this with the settings of each tenant first (--no-switch), or `ocr2kb audit --fix` if nobody owns them."
        )


def _record(workspace: Workspace, uri: str, job: Job) -> None:
    """Make the manifest name what readers see now; a source that changed meanwhile is left to its own run."""
    manifest = workspace.manifests.read(job.source.bucket, job.source.key)
    published = manifest.published
    if published is None or published.revision != job.revision:
        logger.warning("%s changed while the model was changed: run it again", uri)
        return
    assert job.chunk_count is not None
    now = datetime.now(UTC)
    again = PublishedRevision(
        **{**dict(published), "fingerprints": job.fingerprints, "chunk_count": job.chunk_count, "published_at": now}
    )
    attempt = Attempt(
        run_id=job.run_id,
        at=now,
        status=JobStatus(published.status),
        revision=job.revision,
        fingerprints=job.fingerprints,
        counts=published.counts,
        chunk_count=job.chunk_count,
    )
    workspace.manifests.write(manifest.after(attempt, again))
