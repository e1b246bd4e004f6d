"""Definitions of the corpus: scores on hand-made examples, truth from a PDF made here, scans that repeat exactly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pymupdf
import pytest
from PIL import Image

from benchmarks.corpus import build, score
from benchmarks.corpus.degrade import PROFILES, degrade, page_generator
from benchmarks.corpus.sources import SourceNotFound, fetch_pdf
from benchmarks.corpus.truth import TruthHeading, close_level_gaps, title_similarity


def headings(*entries: tuple[int, str, int]) -> list[score.Heading]:
    return [{"level": level, "title": title, "page": page} for level, title, page in entries]


def test_normalise_unifies_quotes_dashes_bullets_and_leaders() -> None:
    assert score.normalise("“a” – ‘b’\n• c . . . . . . . 12 co\u00adop ﬁt") == "\"a\" - 'b' * c ... 12 coop fit"


@pytest.mark.parametrize(
    ("truth", "predicted", "expected"),
    [
        ("abcd", "abcd", 0.0),
        ("abcd", "abxd", 0.25),
        ("abcd", "", 1.0),
        ("ab", "xxxxxxxx", 1.0),
        ("日本語の手引", "日本 語の 手引", 0.0),
        ("", "abc", None),
    ],
)
def test_character_error_rate(truth: str, predicted: str, expected: float | None) -> None:
    assert score.character_error_rate(truth, predicted) == expected


def test_word_f1_ignores_order_and_counts_repeats() -> None:
    assert score.word_f1("pump the pump", "the pump pump") == 1.0
    assert score.word_f1("pump the pump", "pump the") == pytest.approx(0.8)
    assert score.word_f1("...", "pump") is None


def test_reading_order_of_swapped_paragraphs() -> None:
    first = "Disconnect the mains before opening the housing."
    second = "Torque all four flange bolts to 25 Nm crosswise."
    third = "Dispose of worn batteries at a collection point."
    blocks = [{"text": first}, {"text": second}, {"text": third}, {"text": "Page header " * 3, "furniture": True}]
    assert score.reading_order(blocks, [first, second, third]) == 1.0
    assert score.reading_order(blocks, [second, third]) == pytest.approx(1 - 1 / 3)
    assert score.reading_order(blocks, [third, first, second]) == pytest.approx(1 - 2 / 3)
    assert score.reading_order(blocks[:2], [first, second]) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("2.1 Wiring the pump", "**Wiring the pump**", 1.0),
        ("Chapter 3 Safety", "Safety", 1.0),
        ("Safety", "Installation", 1 / 3),
        ("---", "Safety", 0.0),
    ],
)
def test_title_similarity(first: str, second: str, expected: float) -> None:
    assert score.title_similarity(first, second) == pytest.approx(expected)


def test_perfect_headings_one_level_deeper_score_one() -> None:
    gold = headings((1, "Safety", 1), (2, "Electric shock", 1), (1, "Wiring", 2))
    predicted = headings((2, "Safety", 1), (3, "Electric shock", 1), (2, "Wiring", 2))
    pairs = score.match_headings(gold, predicted)
    assert pairs == [(0, 0), (1, 1), (2, 2)]
    assert score.level_accuracy(gold, predicted, pairs) == (1.0, -1)
    assert score.parent_accuracy(gold, predicted, pairs) == 1.0
    assert score.tree_score(gold, predicted, pairs) == 1.0


def test_headings_on_another_page_or_used_twice_do_not_match() -> None:
    gold = headings((1, "Safety", 1), (1, "Safety", 3))
    predicted = headings((1, "Safety", 1), (1, "Safety", 1), (1, "Safety", 2))
    assert score.match_headings(gold, predicted) == [(0, 0)]


def test_wrong_parent_and_missing_and_extra_headings() -> None:
    gold = headings((1, "Safety", 1), (2, "Electric shock", 1), (1, "Wiring", 2), (2, "Fuses", 2))
    predicted = headings((1, "Safety", 1), (1, "Electric shock", 1), (2, "Fuses", 2), (1, "Nonsense", 2))
    scores = score.score({"pages": [], "outline": gold}, {"pages": [{"n": 1}, {"n": 2}], "headings": predicted})
    assert (scores["gold"], scores["pred"], scores["matched"]) == (4, 4, 3)
    assert scores["h_f1"] == pytest.approx(0.75)
    assert scores["level_acc"] == pytest.approx(2 / 3)
    # Safety has no parent in both trees; Electric shock lost its own; the parent of Fuses was not found
    assert scores["parent_acc"] == pytest.approx(1 / 3)
    # the cheapest edit: Electric shock becomes a child (2), Wiring appears above Fuses (1), Nonsense goes (1) ...
    assert scores["tree"] == pytest.approx(0.25)


def test_only_pages_that_were_read_are_scored() -> None:
    text = "A page with enough characters to be scored, since shorter ones say little about any engine at all."
    truth = {
        "pages": [{"n": n, "text": text, "blocks": []} for n in (1, 2)],
        "outline": headings((1, "Safety", 1), (1, "Wiring", 2)),
    }
    scores = score.score(truth, {"pages": [{"n": 2, "text": text}], "headings": headings((1, "Wiring", 2))})
    assert scores["cer_mean"] == 0.0
    assert (scores["gold"], scores["h_r"]) == (1, 1.0)


def test_close_level_gaps_keeps_the_tree() -> None:
    levels = [1, 3, 3, 2, 4, 1]
    entries = [TruthHeading(level=n, title="t", printed="t", page=1, bbox=(0, 0, 1, 1)) for n in levels]
    assert [entry.level for entry in close_level_gaps(entries)] == [1, 2, 2, 2, 3, 1]


def test_truth_title_similarity_with_number() -> None:
    assert title_similarity("2.1 Wiring the pump", "Wiring the pump") == 1.0


@pytest.fixture
def manual(tmp_path: Path) -> Path:
    """Three pages: a heading and text, a bookmark that leads to nothing printed, a heading on the following page."""
    path = tmp_path / "manual.pdf"
    with pymupdf.open() as document:
        for heading, body in (
            ("1 Safety", "Read this first."),
            ("", "No heading here."),
            ("1.1 Electric shock", "Mind."),
        ):
            page = document.new_page(width=595, height=842)
            page.insert_text((72, 30), "Pump manual")
            page.insert_text((72, 120), heading, fontsize=18)
            page.insert_text((72, 200), body)
        document.set_toc([[1, "Safety", 1], [2, "Nowhere", 1], [2, "Electric shock", 2]])
        document.save(path)
    return path


def test_build_writes_truth_scan_and_born_digital_cut(manual: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    entry = {"name": "pump", "split": "dev", "lang": "en", "package": f"file:{manual}", "pages": [1, 99]}
    spec.write_text(json.dumps([entry]), encoding="utf-8")
    assert build.main([str(spec), str(tmp_path / "out"), "--profile", "fax200bw"]) == 0
    folder = tmp_path / "out" / "pump"
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    assert [(h["level"], h["title"], h["printed"], h["page"]) for h in truth["outline"]] == [
        (1, "Safety", "1 Safety", 1),
        (2, "Electric shock", "1.1 Electric shock", 3),
    ]
    assert [(d["title"], d["reason"]) for d in truth["dropped"]] == [("Nowhere", "not printed on its page")]
    assert [block["text"] for block in truth["pages"][0]["blocks"] if block["furniture"]] == ["Pump manual"]
    assert truth["pages"][0]["text"] == "Pump manual\n1 Safety\nRead this first."
    with pymupdf.open(folder / "scanned.fax200bw.pdf") as scan, pymupdf.open(folder / "born.pdf") as born:
        assert [page.get_text().strip() for page in scan] == ["", "", ""]
        assert len(scan[0].get_images()) == 1
        assert born.get_toc() == []
        assert "Read this first." in born[0].get_text()


def test_an_unknown_manual_name_is_a_usage_error(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text("[]", encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        build.main([str(spec), str(tmp_path), "--only", "nosuch"])


def test_a_missing_local_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match=r"nothing\.pdf does not exist"):
        fetch_pdf(f"file:{tmp_path}/nothing.pdf", "", tmp_path)


@pytest.mark.parametrize("profile", ["office200", "bad150"])
def test_degrading_repeats_exactly_for_one_seed_and_differs_for_another(profile: str) -> None:
    clean = Image.fromarray(np.full((400, 300), 255, dtype=np.uint8))

    def scanned(seed: int) -> np.ndarray:
        return np.asarray(degrade(clean, PROFILES[profile], page_generator(seed, "pump", profile, 1)))

    assert np.array_equal(scanned(7), scanned(7))
    assert not np.array_equal(scanned(7), scanned(8))
    assert scanned(7).shape == (400, 300)


def test_the_shipped_specification_is_readable() -> None:
    specs = build.load_specs(Path(build.__file__).with_name("manuals.json"))
    assert len(specs) == 10
    assert {spec.lang for spec in specs} == {"en", "de", "ja", "fr", "es"}
    assert len({spec.name for spec in specs}) == 10
