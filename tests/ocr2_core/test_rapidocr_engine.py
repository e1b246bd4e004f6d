from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pymupdf
import pytest

from ocr2_core.blocks import BlockLabel, TextLine
from ocr2_core.engine import Engine, PageImage
from ocr2_core.engines import create_engine
from ocr2_core.errors import EngineError
from ocr2_core.ledger import PageStatus, reconcile
from ocr2_core.rapidocr_engine import RapidOcrEngine
from ocr2_core.rendering import open_source
from ocr2_core.upright import prepare

SAMPLES = Path(__file__).parents[2] / "samples"

BODY = [
    "A supply that loses its line answers with a status of its own and the",
    "driver hands this on within two seconds to every client on the net.",
    "Clients may be many; the order in which they stop is set in one file.",
]


def manual_page(page_maker: Callable[[], object]) -> PageImage:
    page = page_maker()
    page.text(72, 40, "Network Supply Manual", size=8).text(500, 40, "Page 7", size=8)
    page.text(72, 110, "2 Configuration", size=18, font="hebo")
    page.lines(72, 145, BODY)
    page.text(72, 205, "2.1 Choosing the driver", size=13, font="hebo")
    page.lines(72, 230, BODY)
    page.lines(84, 290, ["• the name of the device", "• the port it is wired to", "• the baud rate"], leading=16)
    page.lines(84, 360, ["[myups]", "  driver = usbhid-ups", "  port = auto"], font="cour")
    page.lines(72, 420, BODY)
    return page.render()


def test_reads_a_rendered_page_exactly(engine: RapidOcrEngine, page_maker: Callable[[], object]) -> None:
    (result,) = engine.read_pages([manual_page(page_maker)])
    assert [(block.label.value, block.text) for block in result.page.blocks] == [
        ("page_header", "Network Supply Manual Page 7"),
        ("section_header", "2 Configuration"),
        ("text", " ".join(BODY)),
        ("section_header", "2.1 Choosing the driver"),
        ("text", " ".join(BODY)),
        ("list_item", "• the name of the device"),
        ("list_item", "• the port it is wired to"),
        ("list_item", "• the baud rate"),
        ("code", "[myups]\n  driver = usbhid-ups\n  port = auto"),
        ("text", " ".join(BODY)),
    ]
    assert result.ledger.status is PageStatus.OK
    assert result.ledger.token_count == sum(len(block.text.split()) for block in result.page.blocks)
    assert result.ledger.confidence is not None
    assert result.ledger.confidence > 0.95


def test_type_evidence(engine: RapidOcrEngine, page_maker: Callable[[], object]) -> None:
    (result,) = engine.read_pages([manual_page(page_maker)])
    lines = {line.text: line for block in result.page.blocks for line in block.lines}
    sizes = [lines[text].font_height_norm for text in BODY]
    assert max(sizes) / min(sizes) < 1.05
    assert sizes[0] * 842 / 999 == pytest.approx(10, rel=0.08)
    assert lines["2 Configuration"].font_height_norm / sizes[0] == pytest.approx(1.8, rel=0.1)
    assert lines["2.1 Choosing the driver"].is_bold is True
    assert lines[BODY[0]].is_bold is False
    assert lines[BODY[0]].is_monospace is False


def test_a_broken_page_fails_alone(engine: RapidOcrEngine, page_maker: Callable[[], object]) -> None:
    good = manual_page(page_maker)
    broken = PageImage(1, np.zeros((0, 0), np.uint8), 200.0)
    broken = dataclasses.replace(broken, image=np.zeros((10, 10, 7, 2), np.uint8))
    results = list(engine.read_pages([good, broken, dataclasses.replace(good, page_index=2)]))
    assert [result.ledger.status for result in results] == [PageStatus.OK, PageStatus.FAILED, PageStatus.OK]
    assert results[1].ledger.reason
    assert results[1].page.blocks == []
    assert results[0].page.blocks == results[2].page.blocks
    assert reconcile([result.ledger for result in results], 3).failed == 1


def test_results_do_not_depend_on_what_was_read_before(
    engine: RapidOcrEngine, page_maker: Callable[[], object]
) -> None:
    page = manual_page(page_maker)
    (before,) = engine.read_pages([page])
    other = page_maker()
    other.lines(60, 100, [f"Line {i} is another text of no matter" for i in range(30)], size=14, leading=20)
    list(engine.read_pages([other.render(5)]))
    (after,) = engine.read_pages([page])
    assert after.page == before.page


def test_pages_come_one_by_one(engine: RapidOcrEngine, page_maker: Callable[[], object]) -> None:
    taken = []

    def pages() -> Iterator[PageImage]:
        for index in range(3):
            taken.append(index)
            yield dataclasses.replace(manual_page(page_maker), page_index=index)

    results = engine.read_pages(pages())
    assert next(results).page.page_index == 0
    assert taken == [0]
    results.close()


def test_a_page_of_ink_without_text_is_ok_and_says_so(engine: RapidOcrEngine) -> None:
    image = np.full((1100, 850), 250, np.uint8)
    image[300:700, 200:600] = 40
    (result,) = engine.read_pages([PageImage(0, image, 100.0)])
    assert result.ledger.status is PageStatus.OK
    assert result.ledger.token_count == 0
    assert result.ledger.reason == "no text found"
    assert [block.label for block in result.page.blocks] == [BlockLabel.PICTURE]
    x0, y0, x1, y1 = result.page.blocks[0].bbox_norm
    assert (x0, y0, x1, y1) == pytest.approx((235, 272, 705, 636), abs=40)


def test_colour_pages_read_like_gray_ones(engine: RapidOcrEngine, page_maker: Callable[[], object]) -> None:
    page = manual_page(page_maker)
    colour = dataclasses.replace(page, image=np.repeat(page.image[:, :, None], 3, axis=2))
    (gray_result,), (colour_result,) = engine.read_pages([page]), engine.read_pages([colour])
    assert colour_result.page.blocks == gray_result.page.blocks


def test_ideographs_are_read(engine: RapidOcrEngine, page_maker: Callable[[], object]) -> None:
    page = page_maker()
    page.text(72, 120, "第一章 安装说明", size=18, font="china-s")
    page.text(72, 160, "请先连接电源，然后启动 driver 程序。", size=12, font="china-s")
    page.text(72, 190, "The second paragraph is in English.", size=12)
    (result,) = engine.read_pages([page.render()])
    text = "\n".join(block.text for block in result.page.blocks).replace(" ", "")
    assert "第一章安装说明" in text
    assert "请先连接电源" in text
    assert "Thesecondparagraph" in text


def test_text_layer_pages_are_laid_out_and_not_recognised(
    engine: RapidOcrEngine, page_maker: Callable[[], object], line: Callable[..., TextLine]
) -> None:
    page = manual_page(page_maker)
    lines = (line(72, 90, "9 Not what is printed", size=18, is_bold=True), line(72, 137, "Words of the layer."))
    (result,) = engine.read_pages([dataclasses.replace(page, text_lines=lines)])
    assert [block.text for block in result.page.blocks] == ["9 Not what is printed", "Words of the layer."]
    assert result.ledger.engine == "text_layer"
    assert result.ledger.token_count == 9


def test_text_layer_engine_refuses_pages_without_a_layer(page_maker: Callable[[], object]) -> None:
    engine = create_engine("text_layer", thread_count=1)
    (result,) = engine.read_pages([manual_page(page_maker)])
    assert result.ledger.status is PageStatus.FAILED
    assert result.ledger.reason == "the page has no sound text layer; read it with the engine `rapidocr`"


def test_onnxruntime_reads_the_same(engine: RapidOcrEngine, page_maker: Callable[[], object]) -> None:
    page = manual_page(page_maker)
    fallback = RapidOcrEngine(thread_count=2, runtime="onnxruntime")
    (result,) = fallback.read_pages([page])
    (usual,) = engine.read_pages([page])
    assert [block.text for block in result.page.blocks] == [block.text for block in usual.page.blocks]


def test_identity_names_what_the_result_depends_on(engine: RapidOcrEngine) -> None:
    identity = engine.identity()
    assert identity["engine"] == "rapidocr"
    assert len(str(identity["recognition_model"])) == 16
    assert identity == RapidOcrEngine(thread_count=1).identity()
    assert identity != RapidOcrEngine(detection_side_px=960).identity()


def test_engines_by_name() -> None:
    assert create_engine("auto").name == "rapidocr"
    assert isinstance(create_engine("rapidocr"), Engine)
    with pytest.raises(EngineError, match="OCR2KB_MODEL_PATH"):
        create_engine("ocr2")
    with pytest.raises(EngineError, match="Unknown engine 'tesseract'"):
        create_engine("tesseract")
    with pytest.raises(EngineError, match="does not take these options"):
        create_engine("rapidocr", colour="blue")
    with pytest.raises(EngineError, match="thread_count must be at least 1"):
        create_engine("rapidocr", thread_count=0)


def test_importing_the_engines_loads_nothing_heavy() -> None:
    code = (
        "import sys, ocr2_core.engines, ocr2_core.rapidocr_engine; "
        "heavy = {'openvino', 'onnxruntime', 'rapidocr', 'rapid_layout', 'torch', 'cv2'} & set(sys.modules); "
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.skipif(not (SAMPLES / "ups-user-manual.pdf").exists(), reason="the sample manuals are not there")
def test_real_scan(engine: RapidOcrEngine) -> None:
    with open_source(SAMPLES / "ups-user-manual.pdf") as source:
        pages = [prepare(raw) for raw in source.pages([4])]
    (result,) = engine.read_pages([page for page in pages if isinstance(page, PageImage)])
    assert result.ledger.status is PageStatus.OK
    assert result.ledger.token_count > 50


def test_a_real_pdf_page_with_a_table_and_a_picture(engine: RapidOcrEngine) -> None:
    document = pymupdf.open()
    page = document.new_page(width=595, height=842)
    page.insert_text((72, 90), "3 Ratings", fontsize=16, fontname="hebo")
    for x0, y0, x1, y1 in [(80, y, 420, y) for y in (120, 145, 170, 195)] + [(x, 120, x, 195) for x in (80, 200, 420)]:
        page.draw_line((x0, y0), (x1, y1), width=0.8)
    for row, (name, value) in enumerate([("Model", "Rating"), ("SU-700", "450 W"), ("SU-1000", "670 W")]):
        font = "hebo" if row == 0 else "helv"
        page.insert_text((86, 137 + 25 * row), name, fontname=font, fontsize=10)
        page.insert_text((206, 137 + 25 * row), value, fontname=font, fontsize=10)
    page.insert_text((80, 215), "Table 1: Ratings of the models", fontsize=9, fontname="tiro")
    pixmap = page.get_pixmap(dpi=200, colorspace=pymupdf.csGRAY)
    image = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width)
    (result,) = engine.read_pages([PageImage(0, image, 200.0)])
    assert [(block.label.value, block.text) for block in result.page.blocks] == [
        ("section_header", "3 Ratings"),
        (
            "table",
            "<table><tr><th>Model</th><th>Rating</th></tr><tr><td>SU-700</td><td>450 W</td></tr>"
            "<tr><td>SU-1000</td><td>670 W</td></tr></table>",
        ),
        ("caption", "Table 1: Ratings of the models"),
    ]
