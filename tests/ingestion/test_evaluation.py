"""Question sets, evaluation and pictures from the command line, on a published manual with a contents page."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pymupdf
import pytest
from PIL import Image
from typer.testing import CliRunner

from ingestion.cli import app
from ingestion.evaluation import evaluate, make_questions
from ingestion.evaluation_page import write_page
from ingestion.listing import list_sources
from ingestion.pictures import draw_hits
from ingestion.pipeline import ingest
from ingestion.services.object_gateway import S3Access
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from knowledge_base.questions import Question
from knowledge_base.search import search
from tests.ingestion.pages import text_pdf

SECTIONS = (
    ("1 Changing the gearbox oil", "Drain the oil while the gearbox is warm and fill in grade 32 oil to the red mark."),
    ("2 Cleaning the air filter", "Blow the filter out with dry air from the inside until no more dust comes off it."),
    ("3 Setting the belt tension", "The belt gives way by ten millimetres when it is pressed halfway with a thumb."),
    (
        "4 Storing the machine in winter",
        "Empty the water tank so that frost cannot burst the pump, then cover the drive.",
    ),
)


def manual_pdf(extra: tuple[str, str] | None = None) -> bytes:
    """A contents page, and a numbered page for each section; an `extra` one comes last and is not in the contents."""
    pdf = pymupdf.open()
    page = pdf.new_page()
    page.insert_text((72, 90), "Contents", fontsize=20)
    for number, (title, _) in enumerate(SECTIONS):
        y = 130 + 24 * number
        page.insert_text((72, y), title, fontsize=11)
        page.insert_text((300, y), ". " * 30, fontsize=11)
        page.insert_text((500, y), str(number + 2), fontsize=11)
    for number, (title, text) in enumerate([*SECTIONS, *([extra] if extra else [])]):
        page = pdf.new_page()
        page.insert_text((72, 90), title, fontsize=18)
        page.insert_textbox((72, 120, 520, 300), f"{text} " * 3, fontsize=11)
        page.insert_text((290, 810), str(number + 2), fontsize=9)
    buffer = io.BytesIO()
    pdf.save(buffer, no_new_id=True)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def workspace(s3_access: S3Access, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    settings = Settings.load(
        state_dir=tmp_path_factory.mktemp("evaluation"),
        s3_endpoint=s3_access.endpoint,
        s3_access_key=s3_access.access_key,
        s3_secret_key=s3_access.secret_key,
        source_bucket="evaluated-manuals",
        artifact_bucket="evaluated-artifacts",
    )
    with Workspace(settings) as opened:
        opened.ensure_buckets()
        for key, data in (("mower.pdf", manual_pdf()), ("fan.pdf", text_pdf("The fan needs no care."))):
            opened.store.upload("evaluated-manuals", key, io.BytesIO(data), content_type="application/pdf")
        ingest(opened, list_sources(opened.store, "evaluated-manuals"), run_id="first")
        yield opened


@pytest.fixture
def cli(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    settings = workspace.settings
    for name in ("state_dir", "s3_endpoint", "s3_access_key", "source_bucket", "artifact_bucket"):
        monkeypatch.setenv(f"OCR2KB_{name.upper()}", str(getattr(settings, name)))
    monkeypatch.setenv("OCR2KB_S3_SECRET_KEY", settings.s3_secret_key.get_secret_value())
    return CliRunner()


SOURCE = "s3://evaluated-manuals/mower.pdf"


def test_the_contents_page_makes_questions(workspace: Workspace) -> None:
    made = make_questions(workspace)
    assert [(each.question, each.pages) for each in made] == [
        ("Changing the gearbox oil", (2,)),
        ("Cleaning the air filter", (3,)),
        ("Setting the belt tension", (4,)),
        ("Storing the machine in winter", (5,)),
    ]
    assert {(each.source, each.kind) for each in made} == {(SOURCE, "contents")}


def test_every_way_of_searching_is_measured_and_shown_on_a_page(workspace: Workspace, tmp_path: Path) -> None:
    questions = [
        *make_questions(workspace),
        Question(question="How do I <drain> the oil?", source=SOURCE, pages=(2,)),
        Question(question="anything", source="s3://evaluated-manuals/gone.pdf", pages=(1,)),
    ]
    report = evaluate(workspace, questions)
    assert [run.name for run in report.runs] == ["dense", "sparse", "hybrid"]
    assert report.unknown_sources == ["s3://evaluated-manuals/gone.pdf"]
    hybrid = report.runs[2]
    assert [outcome.rank for outcome in hybrid.outcomes] == [1, 1, 1, 1, 1, None]
    assert hybrid.scores["recall@1"].mean == pytest.approx(5 / 6)
    assert [(each.better, each.worse) for each in report.comparisons] == [("hybrid", "dense"), ("hybrid", "sparse")]

    write_page(report, tmp_path / "report" / "index.html")
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "How do I <drain>" not in page
    assert page.count("<rect ") == 3 * 5
    assert "Not found by hybrid: 1" in page
    assert "s3://evaluated-manuals/gone.pdf page 1" in page


def test_the_commands(cli: CliRunner, tmp_path: Path) -> None:
    path, html = tmp_path / "set.jsonl", tmp_path / "report.html"
    made = cli.invoke(app, ["questions", "mower.pdf", "-o", str(path)])
    assert (made.exit_code, made.stdout) == (0, f"4 questions about 1 sources: {path}\n")
    shown = cli.invoke(app, ["evaluate", str(path), "--html", str(html)])
    assert shown.exit_code == 0
    assert "4 questions about 1 sources, means with 95 % intervals" in shown.stdout
    assert "hybrid    1.000 [1.000, 1.000]" in shown.stdout
    assert html.is_file()
    cut = json.loads(cli.invoke(app, ["evaluate", str(path), "--chunkers", "--json"]).stdout)
    assert list(cut["scores"]) == ["dense", "sparse", "hybrid", "structure", "windows"]
    assert cut["scores"]["structure"]["recall@1"]["mean"] == 1.0
    assert cut["comparisons"][-1]["better"] == "structure"
    assert cut["comparisons"][-1]["worse"] == "windows"
    told = json.loads(cli.invoke(app, ["evaluate", str(path), "--json"]).stdout)
    assert told["scores"]["hybrid"]["mrr"] == {"mean": 1.0, "low": 1.0, "high": 1.0}

    none = cli.invoke(app, ["questions", "fan.pdf", "-o", str(path)])
    assert none.exit_code == 4
    assert "has contents or index pages" in none.stderr
    path.write_text('{"question": "x", "source": "s3://other/x.pdf", "page": 1}\n')
    unknown = cli.invoke(app, ["evaluate", str(path)])
    assert unknown.exit_code == 4
    assert "none of the question set's sources is in the knowledge base: s3://other/x.pdf" in unknown.stderr


def test_show_draws_the_boxes_on_the_page(cli: CliRunner, tmp_path: Path) -> None:
    found = cli.invoke(
        app, ["search", "fill in grade 32 oil", "-k", "1", "--show", str(tmp_path / "pictures"), "--json"]
    )
    assert found.exit_code == 0
    (hit,) = json.loads(found.stdout)
    assert hit["pictures"] == [str(tmp_path / "pictures" / "01-page-0002.png")]
    image = np.asarray(Image.open(hit["pictures"][0])).astype(int)
    red = np.argwhere((image[:, :, 0] > 200) & (image[:, :, 1] < 60))
    top, left = red.min(axis=0) / image.shape[:2]
    bottom, right = red.max(axis=0) / image.shape[:2]
    x0, y0, x1, y1 = (value / 999 for value in hit["boxes"][0]["bbox_norm"])
    assert (left, top) == (pytest.approx(x0, abs=0.01), pytest.approx(y0, abs=0.01))
    assert (right, bottom) == (pytest.approx(x1, abs=0.01), pytest.approx(y1, abs=0.01))
    # the text stands inside the frame
    assert image[red[:, 0].min() + 5 : red[:, 0].max() - 5, red[:, 1].min() + 5 : red[:, 1].max() - 5].min() < 100


def test_a_source_that_changed_is_a_problem_of_its_hits_only(workspace: Workspace, tmp_path: Path) -> None:
    with workspace.open_knowledge_base() as knowledge_base:
        hits = search(knowledge_base, workspace.embedder, workspace.sparse_encoder, "care of the fan, filter", k=5)
    fan = next(hit for hit in hits if hit.source.endswith("fan.pdf"))
    mower = next(hit for hit in hits if hit.source.endswith("mower.pdf"))
    changed = fan.model_copy(update={"revision": "0" * 64})
    gone = fan.model_copy(update={"source": "s3://evaluated-manuals/gone.pdf"})
    pictures = draw_hits(workspace, [changed, mower, gone], tmp_path)
    assert [len(picture.files) for picture in pictures] == [0, 1, 0]
    assert "is another revision than the one found" in pictures[0].problem
    assert pictures[1].problem == ""
    assert "s3://evaluated-manuals/gone.pdf does not exist" in pictures[2].problem
