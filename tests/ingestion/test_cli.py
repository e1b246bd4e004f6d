"""The command line as a user runs it: in a process of its own, judged by exit code, stdout and stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingestion.answers import parse_filters
from ingestion.parsing import output_folders
from ingestion.services.object_gateway import S3Access
from tests.ingestion.pages import text_pdf


@pytest.fixture
def env(s3_access: S3Access, tmp_path: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("OCR2KB_")},
        "OCR2KB_STATE_DIR": str(tmp_path / "state"),
        "OCR2KB_S3_ENDPOINT": s3_access.endpoint,
        "OCR2KB_S3_ACCESS_KEY": s3_access.access_key,
        "OCR2KB_S3_SECRET_KEY": s3_access.secret_key,
        "OCR2KB_SOURCE_BUCKET": "cli-manuals",
        "OCR2KB_ARTIFACT_BUCKET": "cli-artifacts",
    }


def ocr2kb(env: dict[str, str], cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ingestion", *arguments],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_parse_writes_three_files_a_document_and_goes_on_after_a_bad_one(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "good.pdf").write_bytes(text_pdf("The fan turns."))
    (tmp_path / "bad.pdf").write_bytes(b"")
    done = ocr2kb(env, tmp_path, "parse", "bad.pdf", "good.pdf", "gone.pdf", "-o", "out", "--view", "--json")
    assert done.returncode == 3, done.stderr
    outcomes = json.loads(done.stdout)
    assert [(item["file"], item["status"], item.get("code")) for item in outcomes] == [
        ("bad.pdf", "refused", "empty"),
        ("good.pdf", "ok", None),
        ("gone.pdf", "refused", "unreadable"),
    ]
    assert "bad.pdf: [empty]" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out" / "good").iterdir()) == [
        "document.json",
        "document.md",
        "pages",
        "report.json",
        "view.html",
    ]
    assert (tmp_path / "out" / "good" / "document.md").read_text().startswith("# 1 Operation\n")
    report = json.loads((tmp_path / "out" / "good" / "report.json").read_text())
    assert report["counts"] == {"page_count": 1, "ok": 1, "blank": 0, "repaired": 0, "failed": 0}
    assert [row["engine"] for row in report["ledger"]] == ["text_layer"]


def test_a_correction_is_taken_without_reading_again(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "pump.pdf").write_bytes(text_pdf("Oil the pump before you start it."))
    assert ocr2kb(env, tmp_path, "ingest", "scans").returncode == 0
    view = ocr2kb(env, tmp_path, "view", "pump.pdf", "-o", "eyes")
    assert (view.returncode, view.stdout) == (0, "eyes/view.html\n"), view.stderr
    html = (tmp_path / "eyes" / "view.html").read_text()
    assert '<a href="#h1">1 Operation</a>' in html
    assert "page 1 <span>ok, text_layer</span>" in html
    assert (tmp_path / "eyes" / "pages" / "0001.jpg").stat().st_size > 1000
    box = html.split("section_header: 1 Operation\n--box ")[1].split('"')[0]

    correct = ("correct", "pump.pdf", "--page", "1", "--box", box)
    done = ocr2kb(env, tmp_path, *correct, "--text", "1 Start of the pump", "--level", "1")
    assert (done.returncode, done.stdout) == (
        0,
        "1 corrections; `ocr2kb ingest s3://cli-manuals/pump.pdf` takes them\n",
    ), done.stderr
    listed = ocr2kb(env, tmp_path, "corrections", "pump.pdf")
    assert listed.stdout.strip().endswith(": level 1, text '1 Start of the pump'")
    nowhere = ocr2kb(env, tmp_path, "correct", "pump.pdf", "--page", "1", "--box", "900,900,990,990", "--order", "1")
    assert nowhere.returncode == 4
    assert "page 1 has no block at this place" in nowhere.stderr
    both = ocr2kb(env, tmp_path, *correct, "--level", "1", "--label", "text")
    assert both.returncode == 2
    assert "it cannot go with the label text" in both.stderr

    again = ocr2kb(env, tmp_path, "ingest", "s3://cli-manuals/pump.pdf", "--json")
    assert [item["status"] for item in json.loads(again.stdout)["documents"]] == ["published"], again.stderr
    assert ocr2kb(env, tmp_path, "read", "pump.pdf").stdout == "1 Start of the pump  (page 1)\n"
    assert ocr2kb(env, tmp_path, "corrections", "pump.pdf", "--remove", "1").stdout == "no corrections\n"
    assert ocr2kb(env, tmp_path, "ingest", "s3://cli-manuals/pump.pdf").returncode == 0
    assert ocr2kb(env, tmp_path, "read", "pump.pdf").stdout == "1 Operation  (page 1)\n"
    deleted = ocr2kb(env, tmp_path, "delete", "pump.pdf", "--with-object")
    assert deleted.returncode == 0, deleted.stderr


def test_parse_of_nothing_but_refused_files(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "notes.pdf").write_text("not a PDF at all")
    done = ocr2kb(env, tmp_path, "parse", "notes.pdf")
    assert done.returncode == 4
    assert done.stdout == ""
    assert "notes.pdf: [unsupported]" in done.stderr


def test_from_a_folder_to_an_answer(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "fan.pdf").write_bytes(text_pdf("The fan must be oiled with grade 32 oil."))
    done = ocr2kb(env, tmp_path, "ingest", "scans")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "1 documents: 1 published"
    again = ocr2kb(env, tmp_path, "ingest", "scans", "--json")
    assert again.returncode == 0, again.stderr
    assert [item["status"] for item in json.loads(again.stdout)["documents"]] == ["unchanged"]

    found = ocr2kb(env, tmp_path, "search", "Which oil does the fan take?", "-k", "1", "--json")
    assert found.returncode == 0, found.stderr
    [hit] = json.loads(found.stdout)
    assert hit["source"] == "s3://cli-manuals/fan.pdf"
    assert hit["section_path"] == ["1 Operation"]
    assert hit["pages"] == [1]
    wide = json.loads(ocr2kb(env, tmp_path, "search", "fan oil", "-k", "1", "--expand", "2", "--json").stdout)
    assert [passage["chunk_index"] for passage in wide[0]["context"]] == [0]
    outline = ocr2kb(env, tmp_path, "read", "fan.pdf")
    assert (outline.returncode, outline.stdout) == (0, "1 Operation  (page 1)\n")
    section = ocr2kb(env, tmp_path, "read", "fan.pdf", "1")
    assert section.stdout.startswith("1 Operation  (page 1)\n\nThe fan must be oiled with grade 32 oil.")
    absent = ocr2kb(env, tmp_path, "read", "fan.pdf", "7")
    assert (absent.returncode, absent.stderr.strip()) == (4, "s3://cli-manuals/fan.pdf has no section '7'")
    none = ocr2kb(env, tmp_path, "search", "oil", "--filter", "page=2-9", "--json")
    assert json.loads(none.stdout) == []

    status = ocr2kb(env, tmp_path, "status", "fan.pdf")
    assert status.returncode == 0, status.stderr
    assert status.stdout.splitlines()[0].split() == [
        "published",
        "s3://cli-manuals/fan.pdf",
        "1",
        "pages,",
        "1",
        "chunks",
    ]
    assert status.stdout.splitlines()[-1].split()[:4] == ["page", "1", "ok", "text_layer"]
    unknown = ocr2kb(env, tmp_path, "status", "nothing.pdf")
    assert unknown.returncode == 4
    assert unknown.stderr.strip() == "error: s3://cli-manuals/nothing.pdf does not exist"

    clean = ocr2kb(env, tmp_path, "audit")
    assert (clean.returncode, clean.stdout) == (0, "1 objects, 1 published, 1 points: no drift\n")
    refused = ocr2kb(env, tmp_path, "delete", "fan.pdf")
    assert refused.returncode == 4
    assert "s3://cli-manuals/fan.pdf is still in the bucket" in refused.stderr
    deleted = ocr2kb(env, tmp_path, "delete", "nothing.pdf", "fan.pdf", "--with-object", "--json")
    assert deleted.returncode == 3
    assert json.loads(deleted.stdout) == [
        {
            "source": "nothing.pdf",
            "status": "refused",
            "cause": "s3://cli-manuals/nothing.pdf does not exist",
        },
        {"source": "s3://cli-manuals/fan.pdf", "status": "deleted", "point_count": 1},
    ]
    assert json.loads(ocr2kb(env, tmp_path, "search", "fan oil", "--json").stdout) == []
    assert ocr2kb(env, tmp_path, "status", "fan.pdf").stdout.startswith("deleted ")


def test_a_service_that_is_down_has_its_own_exit_code(env: dict[str, str], tmp_path: Path) -> None:
    away = {**env, "OCR2KB_S3_ENDPOINT": "http://127.0.0.1:1"}
    done = ocr2kb(away, tmp_path, "status")
    assert done.returncode == 5
    assert "object store http://127.0.0.1:1 is unavailable" in done.stderr
    assert "OCR2KB_S3_ENDPOINT" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["s3://manuals", "s3://manuals/", "s3:///x.pdf", ""])
def test_a_source_without_a_key_is_refused_by_name(name: str, env: dict[str, str], tmp_path: Path) -> None:
    for command in ("delete", "status", "read"):
        done = ocr2kb(env, tmp_path, command, name)
        assert done.returncode == 4
        said = " ".join(done.stderr.split())
        assert said == f"error: {name!r} names no object: give s3://bucket/key, or a key of the source bucket"


def test_search_before_anything_was_ingested(env: dict[str, str], tmp_path: Path) -> None:
    done = ocr2kb(env, tmp_path, "search", "anything")
    assert done.returncode == 4
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["search"],
        ["search", "x", "--mode", "magic"],
        ["search", "x", "--filter", "colour=red"],
        ["read", "x.pdf", " "],
        ["no-such"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], env: dict[str, str], tmp_path: Path) -> None:
    assert ocr2kb(env, tmp_path, *arguments).returncode == 2


def test_a_wrong_setting_is_named(env: dict[str, str], tmp_path: Path) -> None:
    done = ocr2kb({**env, "OCR2KB_DPI": "7"}, tmp_path, "status")
    assert done.returncode == 4
    assert "OCR2KB_DPI" in done.stderr


def test_no_parsed_file_overwrites_another() -> None:
    names = ["a/x.pdf", "b/x.pdf", "x-2.pdf", "X.tif", ".pdf"]
    folders = output_folders([Path(name) for name in names], Path("out"))
    assert [folder.name for folder in folders] == ["x", "x-2", "x-2-2", "X-3", ".pdf"]


def test_filters() -> None:
    filters = parse_filters(["page=3-9", "label=table", "label=code", "section=3 Installing"], "acme")
    assert filters.pages == (3, 9)
    assert filters.labels == ("table", "code")
    assert filters.section == "3 Installing"
    assert filters.tenant == "acme"
    with pytest.raises(ValueError, match="page is a number or FIRST-LAST, not 'x'"):
        parse_filters(["page=x"], "acme")
    with pytest.raises(ValueError, match="'label' is not NAME=VALUE"):
        parse_filters(["label"], "acme")


def test_plan_says_what_fits(env: dict[str, str], tmp_path: Path) -> None:
    done = ocr2kb(env, tmp_path, "plan", "--preset", "paper", "--gpu-gb", "24", "--concurrency", "2", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["bytes"]["kv_a_document"] == 1_769_410_560
    assert answer["fits"] is True
    told = ocr2kb(env, tmp_path, "plan", "--gpu-gb", "6")
    assert "does not fit in 6.00 GB" in told.stdout
    bad = ocr2kb(env, tmp_path, "plan", "--model", str(tmp_path))
    assert bad.returncode == 4
    assert "config.json does not describe an Unlimited-OCR checkpoint" in bad.stderr


def test_parse_with_a_model_that_is_not_there_says_what_to_set(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "good.pdf").write_bytes(text_pdf("The fan turns."))
    for arguments in (["--engine", "ocr2"], ["--engine", "ocr2", "--model", "/nowhere"], ["--model", "/nowhere"]):
        done = ocr2kb(env, tmp_path, "parse", "good.pdf", *arguments)
        assert done.returncode == 4
        assert "OCR2KB_MODEL_PATH" in done.stderr.replace("\n", " ")
        assert "Traceback" not in done.stderr
