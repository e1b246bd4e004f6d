"""The sample manuals are what samples/README.md says: image-only scans with truth and questions that fit them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pymupdf
import pytest

SAMPLES_DIR = Path(__file__).resolve().parents[1] / "samples"
PAGE_COUNTS = {"tool-setup-guide": 6, "ups-user-manual": 20}
MAX_TOTAL_BYTES = 5_000_000


def load_truth(name: str) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((SAMPLES_DIR / "truth" / f"{name}.json").read_text(encoding="utf-8"))
    return truth


def load_questions() -> list[dict[str, Any]]:
    lines = (SAMPLES_DIR / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("name", "page_count"), PAGE_COUNTS.items())
def test_scan_holds_one_200_dpi_image_a_page_and_no_text(name: str, page_count: int) -> None:
    with pymupdf.open(SAMPLES_DIR / f"{name}.pdf") as scan:
        assert scan.page_count == page_count
        assert scan.get_toc() == []
        for page in scan:
            assert page.get_text().strip() == ""
            (image,) = page.get_images()
            stored = scan.extract_image(image[0])
            assert (stored["ext"], stored["colorspace"]) == ("jpeg", 1)
            assert round(stored["width"] / page.rect.width * 72) == 200


def test_samples_stay_small_enough_for_a_repository() -> None:
    assert sum(path.stat().st_size for path in SAMPLES_DIR.glob("*.pdf")) < MAX_TOTAL_BYTES


@pytest.mark.parametrize(("name", "page_count"), PAGE_COUNTS.items())
def test_truth_covers_every_page(name: str, page_count: int) -> None:
    truth = load_truth(name)
    assert [page["page_number"] for page in truth["pages"]] == list(range(1, page_count + 1))
    assert all(len(page["text"]) > 60 for page in truth["pages"])


def test_ups_manual_has_four_heading_levels_and_printed_contents() -> None:
    truth = load_truth("ups-user-manual")
    levels = {heading["level"] for heading in truth["outline"]}
    assert levels == {1, 2, 3, 4}
    chapters = [heading["printed"] for heading in truth["outline"] if heading["level"] == 1]
    assert chapters == [
        "1 Introduction",
        "2 Network UPS Tools Overview",
        "3 Features",
        "4 Download information",
        "5 Installation instructions",
    ]
    contents = " ".join(truth["pages"][1]["text"].split() + truth["pages"][2]["text"].split())
    listed = [heading["title"] for heading in truth["outline"] if heading["title"] in contents]
    assert len(listed) == len(truth["outline"])


def test_each_question_names_a_page_and_the_section_printed_there_or_before() -> None:
    questions = load_questions()
    assert len(questions) >= 8
    assert {question["source"] for question in questions} == {f"{name}.pdf" for name in PAGE_COUNTS}
    for question in questions:
        truth = load_truth(question["source"].removesuffix(".pdf"))
        printed = {heading["printed"]: heading["page_number"] for heading in truth["outline"]}
        assert question["section"] in printed, question["question"]
        assert printed[question["section"]] <= question["page_number"] <= printed[question["section"]] + 1


@pytest.mark.parametrize(
    ("source", "fact", "page_number"),
    [
        ("ups-user-manual", r"general form for UPS identifiers", 5),
        ("ups-user-manual", r"serial = 1234567890", 6),
        ("ups-user-manual", r"Megatec / Q1 protocol", 7),
        ("ups-user-manual", r"this system can.t manage the UPS", 8),
        ("ups-user-manual", r"change the read/write variables", 9),
        ("ups-user-manual", r"Access to that host is not authorized", 10),
        ("ups-user-manual", r"2\.0 clients can.t talk to anything older", 11),
        ("ups-user-manual", r"connected over a pipe", 13),
        ("ups-user-manual", r"3 power supplies and 3 UPSes", 15),
        ("ups-user-manual", r"add --with-usb", 20),
        ("tool-setup-guide", r"DEBFULLNAME", 2),
        ("tool-setup-guide", r"alias dquilt=", 3),
        ("tool-setup-guide", r"debsign command", 4),
        ("tool-setup-guide", r"local HTTP caching proxy", 6),
        ("tool-setup-guide", r"avahi-utils", 6),
    ],
)
def test_the_fact_behind_each_question_stands_on_one_page_only(source: str, fact: str, page_number: int) -> None:
    pages = load_truth(source)["pages"]
    assert [page["page_number"] for page in pages if re.search(fact, page["text"])] == [page_number]


def test_licence_texts_are_beside_the_samples() -> None:
    gpl = (SAMPLES_DIR / "licences" / "GPL-2.txt").read_text(encoding="utf-8")
    assert "GNU GENERAL PUBLIC LICENSE" in gpl
    assert "Version 2, June 1991" in gpl
    expat = (SAMPLES_DIR / "licences" / "debmake-doc.copyright.txt").read_text(encoding="utf-8")
    assert "Permission is hereby granted, free of charge" in expat
    assert "GNU General Public License" in (SAMPLES_DIR / "licences" / "nut-doc.copyright.txt").read_text("utf-8")
