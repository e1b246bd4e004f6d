"""From a scan in the bucket to a cited answer with the engine `ocr2`: the bundled nano model reads its own kind of page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ingestion.services.object_gateway import S3Access
from ocr2_core.nano.document import write_pdf
from ocr2_core.nano.pages import draw_document
from ocr2_core.nano.vocabulary import page_text

PAGE_COUNT = 12


def ocr2kb(env: dict[str, str], cwd: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ingestion", *arguments],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_the_bucket_to_a_cited_answer(s3_access: S3Access, tmp_path: Path) -> None:
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OCR2KB_")},
        "OCR2KB_STATE_DIR": str(tmp_path / "state"),
        "OCR2KB_S3_ENDPOINT": s3_access.endpoint,
        "OCR2KB_S3_ACCESS_KEY": s3_access.access_key,
        "OCR2KB_S3_SECRET_KEY": s3_access.secret_key,
        "OCR2KB_SOURCE_BUCKET": "nano-manuals",
        "OCR2KB_ARTIFACT_BUCKET": "nano-artifacts",
        "OCR2KB_ENGINE": "ocr2",
        "OCR2KB_MODEL_PATH": "ocr2-nano",
        "OCR2KB_PAGE_CHUNK_SIZE": "8",
        "OCR2KB_DPI": "72",
        "OCR2KB_OCR_THREAD_COUNT": "1",
    }
    pages = list(draw_document(7, PAGE_COUNT, split="test"))
    (tmp_path / "scans").mkdir()
    write_pdf(pages, tmp_path / "scans" / "nano.pdf")
    done = json.loads(ocr2kb(env, tmp_path, "ingest", "scans", "--json"))
    assert [document["status"] for document in done["documents"]] == ["published"]
    rows = [line.split() for line in ocr2kb(env, tmp_path, "status", "nano.pdf").splitlines()]
    assert [row[:4] for row in rows if row[0] == "page"] == [
        ["page", str(number), "ok", "ocr2"] for number in range(1, PAGE_COUNT + 1)
    ]
    print([page_text(page) for page in pages])
