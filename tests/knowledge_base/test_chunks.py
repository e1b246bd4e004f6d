from __future__ import annotations

import pytest
from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel, DoclingDocument, ProvenanceItem

from knowledge_base.chunks import ChunkBox, ChunkOptions, chunk_document
from knowledge_base.embedding import Embedder
from knowledge_base.errors import KnowledgeBaseError
from tests.knowledge_base.builders import empty_document, provenance, table_data


def test_chunks_of_a_manual(manual: DoclingDocument, embedder: Embedder) -> None:
    chunks = chunk_document(manual, embedder.tokenizer)

    assert [chunk.chunk_index for chunk in chunks] == [0, 1, 2, 3]
    assert [chunk.section_path for chunk in chunks] == [
        ["1 Installation", "1.1 Tools"],
        ["1 Installation", "1.2 Notes"],
        ["2 Maintenance"],
        ["2 Maintenance", "2.1 Fault codes"],
    ]
    assert [chunk.text for chunk in chunks] == [
        "You need these tools:\n- a torque wrench\n- a bubble level",
        "1.2 Notes",
        "Change the oil of the gearbox after five hundred hours and check the seal for leaks.\nFigure 1. Seal",
        "| Code | Meaning |\n| - | - |\n| E-4071 | motor blocked |",
    ]
    assert [chunk.pages for chunk in chunks] == [[2], [2], [2, 3], [4]]
    assert [chunk.labels for chunk in chunks] == [
        ["text", "list_item"],
        ["section_header"],
        ["text", "picture", "caption"],
        ["table"],
    ]
    assert {chunk.language for chunk in chunks} == {"en"}


def test_embedded_text_has_title_and_heading_path(manual: DoclingDocument, embedder: Embedder) -> None:
    chunks = chunk_document(manual, embedder.tokenizer)
    assert chunks[0].embedded_text == (
        "Pump P-200 Manual\n1 Installation\n1.1 Tools\nYou need these tools:\n- a torque wrench\n- a bubble level"
    )
    assert chunks[1].embedded_text == "Pump P-200 Manual\n1 Installation\n1.2 Notes"


def test_a_paragraph_over_a_page_break_keeps_both_boxes_and_a_caption_its_figure(
    manual: DoclingDocument, embedder: Embedder
) -> None:
    chunk = chunk_document(manual, embedder.tokenizer)[2]
    assert chunk.boxes == [
        ChunkBox(page_number=2, bbox_norm=(99.9, 899.1, 899.1, 949.05)),
        ChunkBox(page_number=3, bbox_norm=(99.9, 49.95, 899.1, 99.9)),
        ChunkBox(page_number=3, bbox_norm=(99.9, 124.88, 899.1, 487.01)),
        ChunkBox(page_number=3, bbox_norm=(99.9, 499.5, 899.1, 524.48)),
    ]


def test_words_inside_a_picture_are_found_once_beside_its_caption(embedder: Embedder) -> None:
    document = empty_document(1)
    picture = document.add_picture(prov=provenance(1, 100, 390))
    caption = document.add_text(
        label=DocItemLabel.CAPTION, text="Figure 1. Panel", parent=picture, prov=provenance(1, 400, 420)
    )
    picture.captions.append(caption.get_ref())
    document.add_text(label=DocItemLabel.TEXT, text="START STOP RESET", parent=picture, prov=provenance(1, 100, 390))
    (chunk,) = chunk_document(document, embedder.tokenizer)
    assert chunk.text == "Figure 1. Panel\nSTART STOP RESET"
    assert chunk.labels == ["picture", "caption", "text"]
    assert [box.bbox_norm for box in chunk.boxes] == [(99.9, 124.88, 899.1, 487.01), (99.9, 499.5, 899.1, 524.48)]


def test_furniture_and_contents_pages_give_no_chunks(manual: DoclingDocument, embedder: Embedder) -> None:
    everything = "\n".join(chunk.embedded_text for chunk in chunk_document(manual, embedder.tokenizer))
    assert "Confidential" not in everything
    assert "Contents" not in everything
    assert everything.count("2 Maintenance") == 2


def test_boxes_with_bottom_left_origin_and_identical_boxes(embedder: Embedder) -> None:
    document = empty_document(1)
    for text in ("one", "two"):
        box = BoundingBox(l=60, t=720, r=540, b=640, coord_origin=CoordOrigin.BOTTOMLEFT)
        document.add_text(label=DocItemLabel.TEXT, text=text, prov=ProvenanceItem(page_no=1, bbox=box, charspan=(0, 3)))
    (chunk,) = chunk_document(document, embedder.tokenizer)
    assert chunk.boxes == [ChunkBox(page_number=1, bbox_norm=(99.9, 99.9, 899.1, 199.8))]
    assert chunk.section_path == []


def test_a_deep_path_survives_level_changes(embedder: Embedder) -> None:
    document = empty_document(1)
    for level, heading, text in (
        (1, "A", "in a"),
        (2, "A.1", "in a one"),
        (3, "A.1.1", "in a one one"),
        (2, "A.2", "in a two"),
        (1, "B", "in b"),
    ):
        document.add_heading(heading, level=level, prov=provenance(1, 10, 20))
        document.add_text(label=DocItemLabel.TEXT, text=text, prov=provenance(1, 30, 40))
    found = {chunk.text: chunk.section_path for chunk in chunk_document(document, embedder.tokenizer)}
    assert found == {
        "in a": ["A"],
        "in a one": ["A", "A.1"],
        "in a one one": ["A", "A.1", "A.1.1"],
        "in a two": ["A", "A.2"],
        "in b": ["B"],
    }


def test_a_long_table_is_split_by_rows_with_its_header_repeated(embedder: Embedder) -> None:
    document = empty_document(1)
    document.add_heading("Torques", level=1, prov=provenance(1, 10, 20))
    caption = document.add_text(label=DocItemLabel.CAPTION, text="Table 1. Torques", prov=provenance(1, 30, 40))
    rows = [["Bolt", "Torque"], *([f"M{number}", f"{number * 3} Nm, twice"] for number in range(60))]
    document.add_table(data=table_data(rows), caption=caption, prov=provenance(1, 50, 500))
    chunks = chunk_document(document, embedder.tokenizer)

    assert len(chunks) > 2
    assert chunks[0].text.startswith("Table 1. Torques\n\n| Bolt | Torque |\n| - | - |\n| M0 | 0 Nm, twice |")
    assert all(chunk.text.startswith("| Bolt | Torque |\n| - | - |\n| M") for chunk in chunks[1:])
    body = [line for chunk in chunks for line in chunk.text.splitlines() if line.startswith("| M")]
    assert body == [f"| M{number} | {number * 3} Nm, twice |" for number in range(60)]
    assert chunks[0].text.count("Table 1. Torques") == 1


HARD_TEXTS = {
    "one endless word": "x" * 5000,
    "dot leaders": "Chapter " + "." * 1000 + " 17",
    "chinese without spaces": "请先关闭设备电源然后打开泵盖检查密封圈是否泄漏" * 60,
    "words": "pressure valve " * 700,
    "numbers and symbols": "0x1F|%§ 12,5±0,3 " * 300,
}


@pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS.keys())
@pytest.mark.parametrize("heading", ["2 Maintenance", "A heading that never ends " * 60], ids=["short", "long"])
def test_no_chunk_exceeds_the_models_limit_and_no_text_is_lost(text: str, heading: str, embedder: Embedder) -> None:
    document = empty_document(1)
    document.add_heading("Outer " * 100, level=1, prov=provenance(1, 10, 20))
    document.add_heading(heading, level=2, prov=provenance(1, 30, 40))
    document.add_text(label=DocItemLabel.TEXT, text=text, prov=provenance(1, 50, 60))
    chunks = chunk_document(document, embedder.tokenizer)

    assert embedder.max_tokens == 256
    for chunk in chunks:
        with_special_tokens = embedder.tokenizer.get_tokenizer()(chunk.embedded_text)["input_ids"]
        assert len(with_special_tokens) <= 256
        assert chunk.token_count == len(with_special_tokens) - 2
        assert chunk.section_path == ["Outer " * 100, heading]
    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(text.split())


def test_a_smaller_limit_is_kept_and_a_larger_one_refused(manual: DoclingDocument, embedder: Embedder) -> None:
    manual.add_text(label=DocItemLabel.TEXT, text="pressure valve " * 100, prov=provenance(4, 200, 300))
    chunks = chunk_document(manual, embedder.tokenizer, ChunkOptions(max_tokens=32))
    assert max(chunk.token_count for chunk in chunks) <= 32
    with pytest.raises(KnowledgeBaseError, match="max_tokens 400 exceeds the 254 tokens"):
        chunk_document(manual, embedder.tokenizer, ChunkOptions(max_tokens=400))


def test_neighbours_of_a_section_are_merged_unless_told_otherwise(embedder: Embedder) -> None:
    document = empty_document(1)
    document.add_heading("Start", level=1, prov=provenance(1, 10, 20))
    for text in ("First step.", "Second step."):
        document.add_text(label=DocItemLabel.TEXT, text=text, prov=provenance(1, 30, 40))
    merged = chunk_document(document, embedder.tokenizer)
    apart = chunk_document(document, embedder.tokenizer, ChunkOptions(merge_neighbours=False))
    assert [chunk.text for chunk in merged] == ["First step.\nSecond step."]
    assert [chunk.text for chunk in apart] == ["First step.", "Second step."]


def test_language_is_the_documents_unless_the_chunk_clearly_has_its_own(embedder: Embedder) -> None:
    english = "Switch the pump off before you open the housing and wait until the motor has cooled down. " * 4
    german = "Schalten Sie die Pumpe aus, bevor Sie das Gehäuse öffnen, und warten Sie, bis der Motor kalt ist. " * 3
    document = empty_document(1)
    for heading, text in (("Safety", english * 3), ("Sicherheit", german), ("Data", "230 V")):
        document.add_heading(heading, level=1, prov=provenance(1, 10, 20))
        document.add_text(label=DocItemLabel.TEXT, text=text.strip(), prov=provenance(1, 30, 40))
    languages = {chunk.section_path[0]: chunk.language for chunk in chunk_document(document, embedder.tokenizer)}
    assert languages == {"Safety": "en", "Sicherheit": "de", "Data": "en"}


def test_a_document_without_text_gives_no_chunks(embedder: Embedder) -> None:
    assert chunk_document(empty_document(2), embedder.tokenizer) == []


def test_a_row_too_wide_for_a_chunk_is_split_by_columns_within_the_limit(embedder: Embedder) -> None:
    document = empty_document(1)
    cells = [" ".join(f"w{column}x{number}" for number in range(60)) for column in range(5)]
    document.add_table(data=table_data([["A", "B", "C", "D", "E"], cells]), prov=provenance(1, 50, 500))
    chunks = chunk_document(document, embedder.tokenizer)
    assert max(chunk.token_count for chunk in chunks) <= 254
    everything = {word for chunk in chunks for word in chunk.text.split()}
    assert [word for cell in cells for word in cell.split() if word not in everything] == []


def test_a_section_joined_with_its_namesake_keeps_only_the_boxes_of_its_text(embedder: Embedder) -> None:
    document = empty_document(2)
    document.add_title("Manual", prov=provenance(1, 10, 20))
    document.add_heading("Notes", level=1, prov=provenance(1, 30, 40))
    document.add_heading("Notes", level=1, prov=provenance(2, 30, 40))
    document.add_text(label=DocItemLabel.TEXT, text="Keep dry.", prov=provenance(2, 50, 60))
    (chunk,) = chunk_document(document, embedder.tokenizer)
    assert (chunk.text, chunk.section_path, chunk.pages, chunk.labels) == ("Keep dry.", ["Notes"], [2], ["text"])
