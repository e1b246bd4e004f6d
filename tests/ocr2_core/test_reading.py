"""Every page comes out exactly once and in order, whatever the file and the engine do."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import Queue

import numpy as np
import pymupdf
import pytest

from ocr2_core.blocks import Block, BlockLabel, PageBlocks
from ocr2_core.engine import Engine, PageImage
from ocr2_core.errors import EngineError, SourceRefused
from ocr2_core.geometry import from_pixels
from ocr2_core.ledger import LedgerRow, PageResult, PageStatus, reconcile
from ocr2_core.reading import ReadingOptions, read_document
from ocr2_core.rendering import PageSource
from ocr2_core.triage import Limits, inspect_file
from tests.ocr2_core.source_files import text_pdf_bytes

# these tests are about pages, not about letters
COARSE = ReadingOptions(ocr="always", limits=Limits(dpi=72))


class InkEngine:
    """Reads a page as one block around its ink; `text_lines` of the page become its text."""

    name = "ink_box"

    def identity(self) -> dict[str, str | int | float | bool]:
        return {"engine": self.name}

    def read_pages(self, pages: Iterable[PageImage]) -> Iterator[PageResult]:
        for page in pages:
            yield self.read(page)

    def read(self, page: PageImage) -> PageResult:
        ys, xs = np.nonzero(page.image < 128)
        height, width = page.image.shape[:2]
        block = Block(
            label=BlockLabel.TEXT,
            bbox_norm=from_pixels((xs.min(), ys.min(), xs.max(), ys.max()), width, height),
            text=" ".join(line.text for line in page.text_lines or ()),
        )
        return PageResult(
            page=PageBlocks(
                page_index=page.page_index,
                width_pt=page.width_pt,
                height_pt=page.height_pt,
                rotation_degrees=page.rotation_degrees,
                skew_degrees=page.skew_degrees,
                page_label=page.page_label,
                blocks=[block],
            ),
            ledger=LedgerRow(page_index=page.page_index, status=PageStatus.OK, engine=self.name, duration_s=0.0),
        )

    def close(self) -> None:
        pass


class TextEngine(InkEngine):
    name = "text_layer"


class OddEngine(InkEngine):
    """An InkEngine whose `read_pages` is another one."""

    name = "odd"

    def __init__(self, read_pages: Callable[[Iterable[PageImage]], Iterator[PageResult]]) -> None:
        self.read_pages = read_pages  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight pages with one sentence each."""
    path = tmp_path_factory.mktemp("reading") / "manual.pdf"
    path.write_bytes(text_pdf_bytes(8))
    return path


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text layer, blank, picture of text, blank, monstrous, text layer; labelled i, ii, 1, 2, 3, 4."""
    document = pymupdf.open()
    picture = pymupdf.open(stream=text_pdf_bytes(1), filetype="pdf")[0].get_pixmap(dpi=100)
    document.new_page().insert_text((72, 100), "A page with a sound text layer.")
    document.new_page()
    scan = document.new_page()
    scan.insert_image(scan.rect, pixmap=picture)
    document.new_page()
    document.new_page(width=20_000, height=20_000)
    document.new_page().insert_text((72, 100), "And one more of them.")
    document.set_page_labels([{"startpage": 0, "style": "r"}, {"startpage": 2, "style": "D"}])
    path = tmp_path_factory.mktemp("reading") / "mixed.pdf"
    document.save(path)
    return path


def _read(path: Path, engine: Engine, *, first_page_index: int = 0) -> list[PageResult]:
    return list(read_document(path, engine, options=COARSE, first_page_index=first_page_index))


def _statuses(results: list[PageResult]) -> list[str]:
    assert [result.page.page_index for result in results] == list(range(len(results)))
    return [result.ledger.status.value for result in results]


def test_each_kind_of_page_takes_its_own_way(mixed: Path) -> None:
    results = list(read_document(mixed, InkEngine(), text_layer_engine=TextEngine()))
    assert _statuses(results) == ["ok", "blank", "ok", "blank", "failed", "ok"]
    assert [result.ledger.engine for result in results] == [
        "text_layer",
        "ink",
        "ink_box",
        "ink",
        "render",
        "text_layer",
    ]
    assert results[0].page.blocks[0].text == "A page with a sound text layer."
    assert results[1].page.blocks == []
    assert "278 by 278 inches" in (results[4].ledger.reason or "")
    assert [result.page.page_label for result in results] == ["i", "ii", "1", "2", "3", "4"]
    assert (results[1].page.width_pt, results[1].page.height_pt) == pytest.approx((595, 842), abs=1)
    counts = reconcile((result.ledger for result in results), 6)
    assert (counts.ok, counts.blank, counts.failed) == (3, 2, 1)


def test_ocr_always_leaves_the_text_layer_alone(mixed: Path) -> None:
    options = ReadingOptions(ocr="always")
    results = list(read_document(mixed, InkEngine(), options=options, text_layer_engine=TextEngine()))
    assert [result.ledger.engine for result in results] == ["ink_box", "ink", "ink_box", "ink", "render", "ink_box"]


def test_reading_goes_on_at_any_page(manual: Path) -> None:
    results = _read(manual, InkEngine(), first_page_index=5)
    assert [result.page.page_index for result in results] == [5, 6, 7]
    assert _read(manual, InkEngine(), first_page_index=8) == []


def test_a_page_whose_text_layer_cannot_be_read_gets_ocr(mixed: Path) -> None:
    def breaks(_: Iterable[PageImage]) -> Iterator[PageResult]:
        raise RuntimeError("no layout")

    results = list(read_document(mixed, InkEngine(), text_layer_engine=OddEngine(breaks)))
    assert [result.ledger.engine for result in results] == ["ink_box", "ink", "ink_box", "ink", "render", "ink_box"]


def test_a_refused_file_raises_before_any_page(tmp_path: Path) -> None:
    (tmp_path / "empty.pdf").write_bytes(b"")
    with pytest.raises(SourceRefused):
        next(read_document(tmp_path / "empty.pdf", InkEngine()))


def test_an_engine_that_breaks_on_one_page_costs_that_page(manual: Path) -> None:
    def breaks_at_3(pages: Iterable[PageImage]) -> Iterator[PageResult]:
        for page in pages:
            if page.page_index == 3:
                raise ValueError("cannot read this")
            yield InkEngine().read(page)

    results = _read(manual, OddEngine(breaks_at_3))
    assert _statuses(results) == ["ok", "ok", "ok", "failed", "ok", "ok", "ok", "ok"]
    assert results[3].ledger.reason == "the engine broke on this page (ValueError: cannot read this)"
    assert results[3].ledger.engine == "odd"


def test_pages_an_engine_had_taken_when_it_broke_are_read_again(manual: Path) -> None:
    seen: list[int] = []

    def in_fours(pages: Iterable[PageImage]) -> Iterator[PageResult]:
        pages = iter(pages)
        while group := list(itertools.islice(pages, 4)):
            seen.extend(page.page_index for page in group)
            for page in group:
                if page.page_index == 1:
                    raise ValueError("cannot read this")
                yield InkEngine().read(page)

    assert _statuses(_read(manual, OddEngine(in_fours))) == ["ok", "failed", *["ok"] * 6]
    assert seen == [0, 1, 2, 3, 2, 3, 4, 5, 6, 7]


def test_pages_an_engine_leaves_out_fail(manual: Path) -> None:
    def odd_pages_only(pages: Iterable[PageImage]) -> Iterator[PageResult]:
        return (InkEngine().read(page) for page in pages if page.page_index % 2)

    results = _read(manual, OddEngine(odd_pages_only))
    assert _statuses(results) == ["failed", "ok"] * 4
    assert results[0].ledger.reason == "the engine gave no result for this page"


def test_an_engine_that_stops_early_is_asked_again(manual: Path) -> None:
    def two_at_most(pages: Iterable[PageImage]) -> Iterator[PageResult]:
        return (InkEngine().read(page) for page in itertools.islice(pages, 2))

    assert _statuses(_read(manual, OddEngine(two_at_most))) == ["ok"] * 8


def test_answers_for_wrong_pages_are_dropped(manual: Path) -> None:
    def confused(pages: Iterable[PageImage]) -> Iterator[PageResult]:
        for page in pages:
            answer = InkEngine().read(page)
            if page.page_index == 2:
                answer.page.page_index = answer.ledger.page_index = 40
            yield answer
            if page.page_index == 5:
                yield answer

    assert _statuses(_read(manual, OddEngine(confused))) == ["ok", "ok", "failed", "ok", "ok", "ok", "ok", "ok"]


def test_answers_out_of_order_come_out_in_order(manual: Path) -> None:
    def backwards(pages: Iterable[PageImage]) -> Iterator[PageResult]:
        return (InkEngine().read(page) for page in reversed(list(pages)))

    assert _statuses(_read(manual, OddEngine(backwards))) == ["ok"] * 8


def test_an_engine_that_cannot_start_raises(manual: Path) -> None:
    def cannot(_: Iterable[PageImage]) -> Iterator[PageResult]:
        raise EngineError("the model is missing")

    with pytest.raises(EngineError, match="the model is missing"):
        _read(manual, OddEngine(cannot))


def test_an_engine_error_later_costs_a_page_and_three_in_a_row_the_document(manual: Path) -> None:
    def out_of_memory_at(bad: set[int]) -> OddEngine:
        def read_pages(pages: Iterable[PageImage]) -> Iterator[PageResult]:
            for page in pages:
                if page.page_index in bad:
                    raise EngineError("out of memory")
                yield InkEngine().read(page)

        return OddEngine(read_pages)

    assert _statuses(_read(manual, out_of_memory_at({2, 3, 6}))).count("failed") == 3
    results: list[PageResult] = []
    pages = read_document(manual, out_of_memory_at({2, 3, 4}), options=COARSE)
    with pytest.raises(EngineError, match="out of memory"):
        deque(map(results.append, pages))
    assert _statuses(results) == ["ok", "ok", "failed", "failed"]


def test_an_engine_may_take_pages_in_a_thread_of_its_own(manual: Path) -> None:
    def threaded(pages: Iterable[PageImage]) -> Iterator[PageResult]:
        taken: Queue[PageImage | None] = Queue(maxsize=2)

        def take() -> None:
            for page in pages:
                taken.put(page)
            taken.put(None)

        thread = threading.Thread(target=take)
        thread.start()
        while (page := taken.get()) is not None:
            yield InkEngine().read(page)
        thread.join()

    assert _statuses(_read(manual, OddEngine(threaded))) == ["ok"] * 8


def test_a_file_that_vanishes_is_no_fault_of_the_engine(manual: Path, tmp_path: Path) -> None:
    path = tmp_path / "manual.pdf"
    path.write_bytes(manual.read_bytes())
    inspection = inspect_file(path)
    path.write_bytes(b"%PDF-1.7 gone")
    with pytest.raises(SourceRefused):
        list(read_document(path, InkEngine(), inspection=inspection))


def test_60_pages_stream_with_bounded_look_ahead(tmp_path: Path) -> None:
    path = tmp_path / "long.pdf"
    path.write_bytes(text_pdf_bytes(60))
    images: list[weakref.ref[object]] = []
    most_alive = 0

    def watching(pages: Iterable[PageImage]) -> Iterator[PageResult]:
        nonlocal most_alive
        for page in pages:
            images.append(weakref.ref(page.image))
            most_alive = max(most_alive, sum(image() is not None for image in images))
            yield InkEngine().read(page)

    taken_when_given_out = []
    for result in read_document(path, OddEngine(watching), options=COARSE):
        taken_when_given_out.append(len(images) - result.page.page_index)
    assert len(taken_when_given_out) == 60
    # each result is handed out before the next page is taken; at most this page's image and the one before it live
    assert set(taken_when_given_out) == {1}
    assert most_alive <= 2


def test_results_waiting_behind_a_slow_engine_are_bounded(tmp_path: Path) -> None:
    document = pymupdf.open()
    document.new_page().insert_text((72, 100), "one")
    for _ in range(150):
        document.new_page()
    document.new_page().insert_text((72, 100), "two")
    document.save(tmp_path / "mostly blank.pdf")
    group_sizes = []

    def looks_ahead(pages: Iterable[PageImage]) -> Iterator[PageResult]:
        group = list(pages)
        group_sizes.append(len(group))
        return (InkEngine().read(page) for page in group)

    results = list(read_document(tmp_path / "mostly blank.pdf", OddEngine(looks_ahead), options=COARSE))
    assert _statuses(results) == ["ok", *["blank"] * 150, "ok"]
    # the blank pages between would all have had to wait, had the engine been given both pages at once
    assert group_sizes == [1, 1]


def test_stopping_early_ends_the_child(manual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[PageSource] = []
    enter = PageSource.__enter__

    def remember(source: PageSource) -> PageSource:
        sources.append(source)
        return enter(source)

    monkeypatch.setattr(PageSource, "__enter__", remember)
    results = read_document(manual, InkEngine(), options=ReadingOptions(ocr="always"))
    next(results)
    assert len(sources[0].worker_pids) == 1
    results.close()  # type: ignore[attr-defined]
    assert sources[0].worker_pids == []
