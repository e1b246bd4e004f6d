"""A reading by an engine that reads pages in groups, cut off between them and taken up again."""

from __future__ import annotations

import io

import pymupdf
import pytest

from ingestion.job import Job, JobOptions, SourceRef
from ingestion.pipeline import run_stage
from ingestion.plan import plan_jobs
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from ocr2_core.engine import PageImage
from ocr2_core.ledger import PageResult
from ocr2_core.ocr2.engine import Ocr2Engine
from ocr2_core.ocr2.page_decoder import EncodedPage
from tests.ocr2_core.ocr2.scripted_decoder import Fault, Script, ScriptedDecoder, Words

PAGE_COUNT = 14


class ScriptedModel:
    def __init__(self) -> None:
        self.script = Script(Words(), PAGE_COUNT, [Fault("loop", 8), Fault("skip", 11)])
        self.vocabulary = self.script.words
        self.decoder = ScriptedDecoder(self.script.words)

    def encode(self, page: PageImage) -> EncodedPage:
        return self.script.source_page(page.page_index).encoded

    def encode_alone(self, page: PageImage) -> EncodedPage:
        return self.script.source_page(page.page_index).encode_alone()


def drawn_pdf() -> bytes:
    """Pages with ink and no text layer."""
    pdf = pymupdf.open()
    for index in range(PAGE_COUNT):
        page = pdf.new_page()
        for line in range(12):
            page.draw_rect((72, 90 + 40 * line, 300 + 10 * index, 100 + 40 * line), fill=(0, 0, 0))
    buffer = io.BytesIO()
    pdf.save(buffer)
    return buffer.getvalue()


DRAWN_PDF = drawn_pdf()


def job_with_model(workspace: Workspace, model: ScriptedModel, key: str, folder: str) -> Job:
    options = JobOptions(engine="ocr2")
    engine = Ocr2Engine(model_path=folder, page_chunk_size=6, max_page_tokens=300, load_model=lambda _: model)
    workspace._engines["ocr2"] = engine
    bucket = workspace.settings.source_bucket
    workspace.store.upload(bucket, key, io.BytesIO(DRAWN_PDF), content_type="application/pdf")
    [job] = plan_jobs(workspace, [SourceRef(bucket=bucket, key=key)], key, options)
    return run_stage("fetch", workspace, job)


def pages_of(workspace: Workspace, job: Job) -> list[tuple[int, str, str | None, list[str]]]:
    results = workspace.artifacts.reading(job.known_revision, job.fingerprints.ocr).pages()
    return [
        (one.page.page_index, one.ledger.status.value, one.ledger.reason, [block.text for block in one.page.blocks])
        for one in results
    ]


@pytest.mark.parametrize("cut_off_at", [6, 11])
def test_a_reading_that_was_cut_off_ends_as_if_it_was_not(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, cut_off_at: int
) -> None:
    folder = str(tmp_path_factory.mktemp("model"))
    settings = settings.model_copy(update={"page_group_size": 2})
    with Workspace(settings) as workspace:
        workspace.ensure_buckets()
        model = ScriptedModel()
        whole_job = job_with_model(workspace, model, "whole.pdf", folder)
        whole = pages_of(workspace, run_stage("read", workspace, whole_job))
        assert [page[0] for page in whole] == list(range(PAGE_COUNT))
        assert [page[0] for page in whole if page[1] == "repaired"] == [8, 11]

    class CutOffError(Exception):
        pass

    def cut_off(result: PageResult, _: int) -> None:
        if result.page.page_number == cut_off_at:
            raise CutOffError

    with Workspace(settings.model_copy(update={"artifact_bucket": f"{settings.artifact_bucket}-b"})) as workspace:
        workspace.ensure_buckets()
        job = job_with_model(workspace, ScriptedModel(), "cut.pdf", folder)
        with pytest.raises(CutOffError):
            run_stage("read", workspace, job, cut_off)
        job = job_with_model(workspace, ScriptedModel(), "cut.pdf", folder)
        handed_out: list[int] = []
        job = run_stage("read", workspace, job, lambda result, _: handed_out.append(result.page.page_number))
        assert pages_of(workspace, job) == whole
        # what is stored comes out once
        assert handed_out == list(range(cut_off_at // 2 * 2 + 1, PAGE_COUNT + 1))
