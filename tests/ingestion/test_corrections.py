"""Corrections of published documents: kept beside the manifests, taken by the next run without reading pages again."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ingestion.cli import app
from ingestion.corrections import CorrectionStore, SourceCorrections
from ingestion.errors import DocumentRefused
from ingestion.job import JobOptions, JobStatus
from ingestion.listing import list_sources
from ingestion.object_store import ObjectStore
from ingestion.pipeline import ingest
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from structure_recovery.corrections import Correction
from tests.ingestion.pages import text_pdf

BOX = (100.0, 100.0, 500.0, 120.0)
NEAR = (101.0, 102.0, 500.0, 121.0)


def corrections_of(*items: Correction) -> SourceCorrections:
    kept = SourceCorrections(bucket="b", key="k.pdf")
    for item in items:
        kept = kept.having(item)
    return kept


def test_a_later_word_on_the_same_block_keeps_what_it_leaves_open() -> None:
    kept = corrections_of(
        Correction(page_number=1, bbox_norm=BOX, level=2, seen_text="Fan"),
        Correction(page_number=2, bbox_norm=BOX, order=1),
        Correction(page_number=1, bbox_norm=NEAR, text="The fan"),
    )
    assert [(each.page_number, each.level, each.text, each.order) for each in kept.corrections] == [
        (2, None, None, 1),
        (1, 2, "The fan", None),
    ]
    assert kept.corrections[1].seen_text == "Fan"
    kept = kept.having(Correction(page_number=1, bbox_norm=BOX, label="text"))
    assert [(each.level, each.label, each.text) for each in kept.corrections if each.page_number == 1] == [
        (None, "text", "The fan")
    ]


def test_what_is_taken_back_is_gone_and_the_digest_tells() -> None:
    empty = corrections_of()
    one = corrections_of(Correction(page_number=1, bbox_norm=BOX, level=2))
    assert empty.digest == ""
    assert len(one.digest) == 64
    assert one.without(1) == empty
    with pytest.raises(IndexError, match="no correction 2: 1 in all"):
        one.without(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--box", "1,2,3", "--level", "1"], "--box '1,2,3' is not x0,y0,x1,y1"),
        (["--box", "a,b,c,d", "--level", "1"], "--box 'a,b,c,d' is not x0,y0,x1,y1"),
        (["--box", "nan,2,3,4", "--level", "1"], "x0 < x1 and y0 < y1, from 0 to 999"),
        (["--box", "1,2,3,4"], "needs a level, a label, a text or an order"),
        (["--box", "1,2,3,4", "--text", ""], "--text: String should have at least 1 character"),
        (["--box", "1,2,3,4", "--level", "99"], "--level: Input should be less than or equal to 9"),
    ],
)
def test_a_correction_without_sense_is_a_usage_error_that_says_which(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["correct", "manual.pdf", "--page", "1", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr


def test_damaged_corrections_refuse_their_document_and_no_other(
    settings: Settings, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = settings.source_bucket
    for name in ("damaged.pdf", "sound.pdf"):
        store.put_bytes(bucket, name, text_pdf(f"The {name} turns."), content_type="application/pdf")
    nowhere = Correction(page_number=1, bbox_norm=(900, 900, 990, 990), level=2)
    kept = SourceCorrections(bucket=bucket, key="damaged.pdf").having(nowhere)
    with Workspace(settings) as workspace:
        workspace.corrections.write(kept)
        [item] = store.list(settings.artifact_bucket, "corrections/")
        store.put_bytes(settings.artifact_bucket, item.key, b'{"bucket": ', content_type="application/json")
        jobs = ingest(workspace, list_sources(store, bucket), run_id="first", options=JobOptions())
        assert [(job.source.key, job.status) for job in jobs] == [
            ("damaged.pdf", JobStatus.QUARANTINED),
            ("sound.pdf", JobStatus.PUBLISHED),
        ]
        reason = jobs[0].reason
        assert reason is not None
        assert (reason.code, reason.stage) == ("corrections_unreadable", "recover")
        assert item.key in reason.cause
        with pytest.raises(DocumentRefused, match="Mend that object, or delete it"):
            CorrectionStore(store, settings.artifact_bucket).read(bucket, "damaged.pdf")

        # mended: a correction whose block is not there is told, and changes nothing
        workspace.corrections.write(kept)
        [job] = ingest(workspace, list_sources(store, bucket, keys=["damaged.pdf"]), run_id="second")
        assert job.status is JobStatus.PUBLISHED
        assert f"no block was found for a correction: {nowhere}" in caplog.text
