"""The `ocr2` engine on a scripted model: images in, blocks and ledger rows out, one for each page, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocr2_core.blocks import BlockLabel
from ocr2_core.engine import Engine, GroupedEngine, PageImage
from ocr2_core.engines import create_engine
from ocr2_core.errors import EngineError
from ocr2_core.ledger import PageResult, PageStatus, reconcile
from ocr2_core.ocr2.engine import Ocr2Engine
from ocr2_core.ocr2.fair_lock import FairLock
from ocr2_core.ocr2.page_decoder import EncodedPage
from ocr2_core.ocr2.page_model import ModelOptions
from tests.ocr2_core.ocr2.scripted_decoder import Fault, Script, ScriptedDecoder, Words


class ScriptedModel:
    """Knows a page by the gray value of its image, which is its index; `seed` by the value below it."""

    def __init__(self, scripts: list[Script], pool_blocks: int = 10**6) -> None:
        self.scripts = scripts
        self.vocabulary = scripts[0].words
        self.decoder = ScriptedDecoder(scripts[0].words, pool_blocks=pool_blocks)
        self.encoded: list[int] = []
        self.alone_shapes: list[tuple[int, ...]] = []
        self.encoding_threads: set[str] = set()

    def encode(self, page: PageImage) -> EncodedPage:
        self.encoding_threads.add(threading.current_thread().name)
        index, document = int(page.image[0, 0]), int(page.image[1, 0])
        if index == 200:
            raise ValueError("a page image of no use")
        self.encoded.append(index)
        return self.scripts[document].source_page(index).encoded

    def encode_alone(self, page: PageImage) -> EncodedPage:
        self.alone_shapes.append(page.image.shape)
        index, document = int(page.image[0, 0]), int(page.image[1, 0])
        assert page.page_index == index
        return self.scripts[document].source_page(index).encode_alone()


def image(index: int, document: int = 0, page_index: int | None = None) -> PageImage:
    pixels = np.full((140, 100), 255, np.uint8)
    pixels[0, 0], pixels[1, 0] = index, document
    return PageImage(
        page_index=index if page_index is None else page_index,
        image=pixels,
        dpi=72,
        rotation_degrees=90,
        skew_degrees=0.5,
        page_label=f"p{index}",
    )


def engine_of(model: ScriptedModel, tmp_path: Path, **options: Any) -> Ocr2Engine:
    chosen = {"page_chunk_size": 6, "max_page_tokens": 300, **options}
    return Ocr2Engine(model_path=tmp_path, load_model=lambda _: model, **chosen)


def plain_text(result: PageResult) -> str:
    return " ".join(block.text for block in result.page.blocks)


def test_pages_come_out_with_blocks_and_ledger(tmp_path: Path) -> None:
    script = Script(Words(), 15, [Fault("loop", 7), Fault("long", 9, alone=True)])
    model = ScriptedModel([script])
    engine = engine_of(model, tmp_path)
    assert isinstance(engine, Engine)
    assert isinstance(engine, GroupedEngine)
    results = list(engine.read_pages(image(index) for index in range(15)))
    counts = reconcile((result.ledger for result in results), 15)
    assert (counts.ok, counts.repaired, counts.failed) == (13, 1, 1)
    assert [result.page.page_index for result in results] == list(range(15))
    page = results[4].page
    assert (page.width_pt, page.height_pt, page.rotation_degrees, page.skew_degrees) == (100, 140, 90, 0.5)
    assert page.page_label == "p4"
    (block,) = page.blocks
    assert (block.label, block.bbox_norm) == (BlockLabel.TEXT, (10, 20, 104, 200))
    assert block.text == " ".join(word.strip() for word in script.strings(4)[4:])
    row = results[4].ledger
    assert (row.engine, row.status, row.reason, row.token_count) == ("ocr2", PageStatus.OK, None, 28)
    assert results[7].ledger.reason == "loop: the decoder repeated itself; read again alone"
    assert results[9].ledger.status is PageStatus.FAILED
    # what was read before the budget was used up is kept
    assert plain_text(results[9]).startswith(" ".join(word.strip() for word in script.strings(9)[4:]))
    assert model.alone_shapes == [(140, 100), (140, 100)]
    assert model.decoder.usage().kv_bytes == 0
    assert model.encoding_threads == {"ocr2-prefetch"}
    assert engine.report is not None
    assert engine.report.step_count == len(model.decoder.batch_sizes)


def test_encoding_runs_ahead_by_a_bounded_number_of_pages(tmp_path: Path) -> None:
    script = Script(Words(), 60)
    model = ScriptedModel([script])
    pulled: list[int] = []

    def pages() -> Iterator[PageImage]:
        for index in range(60):
            pulled.append(index)
            yield image(index)

    results = engine_of(model, tmp_path).read_pages(pages())
    next(results)
    # a group, one page behind it, the queue, and the page in hand
    assert len(pulled) <= 6 + 6 + 6 + 2
    assert len(list(results)) == 59


def test_documents_read_in_several_threads_decode_together(tmp_path: Path) -> None:
    words = Words()
    scripts = [Script(words, 12, seed=number) for number in range(4)]
    model = ScriptedModel(scripts)
    engine = engine_of(model, tmp_path)
    start = threading.Barrier(4)
    texts: dict[int, list[str]] = {}

    def read(document: int) -> None:
        start.wait()
        results = engine.read_pages(image(index, document) for index in range(12))
        texts[document] = [plain_text(result) for result in results]

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, script in enumerate(scripts):
        assert texts[number] == [" ".join(word.strip() for word in script.strings(page)[4:]) for page in range(12)]
    assert max(model.decoder.batch_sizes) > 1


def test_a_page_that_cannot_be_prepared_fails_alone(tmp_path: Path) -> None:
    model = ScriptedModel([Script(Words(), 5)])
    pages = [image(0), image(1), image(200, page_index=2), image(3), image(4)]
    results = list(engine_of(model, tmp_path).read_pages(pages))
    assert [result.ledger.status.value for result in results] == ["ok", "ok", "failed", "ok", "ok"]
    assert results[2].ledger.reason == "preparing the page failed (ValueError: a page image of no use)"


def test_pages_before_a_broken_source_are_read(tmp_path: Path) -> None:
    def pages() -> Iterator[PageImage]:
        yield from (image(index) for index in range(8))
        raise OSError("the file went away")

    seen: list[int] = []

    def read() -> None:
        results = engine_of(ScriptedModel([Script(Words(), 20)]), tmp_path).read_pages(pages())
        seen.extend(result.page.page_index for result in results)

    with pytest.raises(OSError, match="the file went away"):
        read()
    assert seen == list(range(8))


def test_a_reader_that_leaves_early_leaves_nothing_behind(tmp_path: Path) -> None:
    model = ScriptedModel([Script(Words(), 40)])
    results = engine_of(model, tmp_path).read_pages(image(index) for index in range(40))
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert model.decoder.usage().kv_bytes == 0
    assert all(thread.name != "ocr2-prefetch" for thread in threading.enumerate())


def test_a_pool_too_small_is_an_engine_error(tmp_path: Path) -> None:
    model = ScriptedModel([Script(Words(), 10)], pool_blocks=5)
    with pytest.raises(EngineError, match="page_chunk_size"):
        list(engine_of(model, tmp_path).read_pages(image(index) for index in range(10)))


def test_no_pages_load_no_model(tmp_path: Path) -> None:
    def load(_: ModelOptions) -> Any:
        raise AssertionError("loaded")

    assert list(Ocr2Engine(model_path=tmp_path, load_model=load).read_pages([])) == []


def test_a_missing_model_says_what_to_set() -> None:
    with pytest.raises(EngineError, match=r"OCR2KB_MODEL_PATH.*--model"):
        create_engine("ocr2")
    with pytest.raises(EngineError, match=r"no model folder /nowhere.*OCR2KB_MODEL_PATH"):
        create_engine("ocr2", model_path="/nowhere")


def test_the_identity_tells_what_the_result_depends_on_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "unlimited_ocr"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    first = create_engine("ocr2", model_path=tmp_path).identity()
    assert first["page_chunk_size"] == 12
    assert first["boundary"] == "restart"
    assert create_engine("ocr2", model_path=tmp_path).identity() == first
    assert create_engine("ocr2", model_path=tmp_path, preset="paper").identity()["page_chunk_size"] == 105
    # how much is read at a time changes no page
    assert create_engine("ocr2", model_path=tmp_path, max_concurrency=2, kv_cache_watermark=0.5).identity() == first
    (tmp_path / "config.json").write_text('{"model_type": "unlimited_ocr", "sliding_window": 64}')
    assert create_engine("ocr2", model_path=tmp_path).identity() != first
    hub = create_engine("ocr2", model_path="baidu/Unlimited-OCR", revision="abc").identity()
    assert (hub["model"], hub["revision"]) == ("baidu/Unlimited-OCR", "abc")


@pytest.mark.parametrize(
    "options",
    [
        {"boundary": "jump"},
        {"preset": "v9"},
        {"page_chunk_size": 4, "chunk_overlap": 4},
        {"kv_cache_watermark": 1.5},
        {"max_concurrency": 0},
        {"timeout_seconds": 0.0},
        {"max_page_tokens": 0},
        {"no_such_option": 1},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        create_engine("ocr2", model_path=tmp_path, **options)


def test_a_resumed_document_gives_equal_pages(tmp_path: Path) -> None:
    def read(first: int) -> list[tuple[int, str]]:
        model = ScriptedModel([Script(Words(), 20)])
        results = engine_of(model, tmp_path).read_pages(image(index) for index in range(first, 20))
        return [(result.page.page_index, plain_text(result)) for result in results]

    engine = engine_of(ScriptedModel([Script(Words(), 20)]), tmp_path)
    start = engine.resume_page_index(13)
    assert start == 10
    assert [page for page in read(start) if page[0] >= 13] == [page for page in read(0) if page[0] >= 13]


def test_a_fair_lock_is_given_in_the_order_of_asking() -> None:
    lock, turns, threads = FairLock(), [], []

    def work(name: int) -> None:
        with lock:
            turns.append(name)

    with lock:
        for name in range(4):
            threads.append(threading.Thread(target=work, args=(name,)))
            threads[-1].start()
            while len(lock._waiting) <= name:
                threading.Event().wait(0.001)
    # the one that has just released it asks again, behind those who waited
    work(4)
    for thread in threads:
        thread.join()
    assert turns == [0, 1, 2, 3, 4]
