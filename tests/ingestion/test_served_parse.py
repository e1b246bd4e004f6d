"""Parsing a scan through the `served` engine, from the settings to the files that are written."""

from __future__ import annotations

import json
from pathlib import Path

import pymupdf
import pytest

from ingestion.job import JobOptions
from ingestion.parsing import parse_file
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from ocr2_core.errors import EngineUnavailable
from tests.ocr2_core.served_model_server import API_KEY, Reply, running_server

MANUAL = (
    "<PAGE><|det|>title [118, 90, 500, 120]<|/det|># 1 Operation\n"
    "<|det|>text [118, 140, 880, 300]<|/det|>Turn the fan on.\n"
    "<PAGE><|det|>title [118, 90, 500, 120]<|/det|># 2 Care\n"
    "<|det|>table [118, 140, 880, 300]<|/det|><table><tr><td>Oil</td><td>grade 32</td></tr></table>"
)


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """Two pages with ink on them and no text layer."""
    pdf = pymupdf.open()
    for heading in ("1 Operation", "2 Care"):
        drawn = pymupdf.open()
        page = drawn.new_page()
        page.insert_text((72, 90), heading, fontsize=18)
        page.insert_textbox((72, 120, 520, 700), "Words that the server will not really read. " * 8, fontsize=11)
        pixmap = page.get_pixmap(dpi=100, colorspace=pymupdf.csGRAY)
        target = pdf.new_page(width=page.rect.width, height=page.rect.height)
        target.insert_image(target.rect, pixmap=pixmap)
    pdf.save(tmp_path / "scan.pdf")
    return tmp_path / "scan.pdf"


def test_scan_is_read_by_the_server(scan: Path, tmp_path: Path) -> None:
    with running_server() as served:
        served.reply = lambda _pages, _tries: Reply(MANUAL)
        settings = Settings.load(state_dir=tmp_path, served_url=served.url, served_api_key=API_KEY)
        with Workspace(settings) as workspace:
            parsed = parse_file(workspace, scan, JobOptions(engine="served"))
            parsed.write(tmp_path / "out")
        assert len(served.requests) == 1
    ledger = json.loads((tmp_path / "out" / "report.json").read_text())["ledger"]
    assert [(row["engine"], row["status"]) for row in ledger] == [("served", "ok")] * 2
    markdown = (tmp_path / "out" / "document.md").read_text()
    assert "1 Operation" in markdown
    assert "Turn the fan on." in markdown
    assert "grade 32" in markdown


def test_server_that_is_down_is_said(scan: Path, tmp_path: Path) -> None:
    with running_server() as served:
        served.models = Reply("starting", status=503, headers={"Retry-After": "0"})
        settings = Settings.load(state_dir=tmp_path, served_url=served.url, served_api_key=API_KEY)
        with (
            Workspace(settings) as workspace,
            pytest.raises(EngineUnavailable, match=f"{served.url} cannot be used: HTTP 503: starting"),
        ):
            parse_file(workspace, scan, JobOptions(engine="served"))
