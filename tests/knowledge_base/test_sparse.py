from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from knowledge_base.language import detect_language, detect_language_of_part
from knowledge_base.sparse import SparseEncoder, SparseVector

encoder = SparseEncoder()


def common(first: SparseVector, second: SparseVector) -> int:
    return len(set(first.indices) & set(second.indices))


def test_term_ids_never_change() -> None:
    vector = encoder.encode_passage("pump pump valves", "en")
    assert vector.indices == (746596696, 1701068117)
    assert vector.values == pytest.approx(
        (2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 110)), 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / 110)))
    )


def test_weights_follow_bm25() -> None:
    plain = SparseEncoder(k1=1.2, b=0.75, average_length=4)
    # length 4 equals the average: tf 3 weighs 3 * 2.2 / (3 + 1.2), tf 1 weighs 1 * 2.2 / (1 + 1.2)
    vector = plain.encode_passage("valve valve valve pump", "en")
    assert sorted(vector.values) == pytest.approx([1.0, 6.6 / 4.2])
    with pytest.raises(ValueError, match="BM25 needs"):
        SparseEncoder(b=2)


def test_words_are_stemmed_in_the_language_of_the_text() -> None:
    assert common(encoder.encode_passage("leaking valves", "en"), encoder.encode_query("leaks valve", "en")) == 2
    assert common(encoder.encode_passage("die Ventile", "de"), encoder.encode_query("des Ventils", "de")) == 1


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that give way to each other all the time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
def test_threads_do_not_mix_up_their_words() -> None:
    letters = "abcdefghijklmnop"
    words = ["".join(pair) + "walking" for pair in itertools.product(letters, letters)]
    with ThreadPoolExecutor(8) as pool:
        vectors = list(pool.map(lambda word: encoder.encode_passage(word, "en"), words))
    assert [vector.indices for vector in vectors] == [
        encoder.encode_query(word.removesuffix("ing"), "xx").indices for word in words
    ]


def test_a_query_without_a_language_finds_passages_of_any() -> None:
    for language, passage, query in (
        ("en", "replacing the seals", "seal replaced"),
        ("de", "Wartung der Pumpen", "Pumpe warten"),
        ("fr", "les vannes fermées", "vanne fermer"),
        ("xx", "blorb", "blorb"),
    ):
        assert common(encoder.encode_passage(passage, language), encoder.encode_query(query)) >= 1


def test_part_numbers_are_found_whole_and_by_their_parts() -> None:
    passage = encoder.encode_passage("Fault E-4071: see /etc/hosts.allow and foo_bar.", "en")
    assert common(passage, encoder.encode_query("e-4071", "en")) == 3
    assert common(passage, encoder.encode_query("4071", "en")) == 1
    assert common(passage, encoder.encode_query("hosts.allow", "en")) == 2
    assert common(passage, encoder.encode_query("FOO_BAR", "en")) == 3


@pytest.mark.parametrize(
    ("passage", "query"),
    [
        ("请先关闭设备电源", "电源"),
        ("電源を切ってください", "電源"),
        ("전원을 끄십시오", "전원"),
        ("ปิดเครื่องก่อน", "เครื่อง"),
    ],
)
def test_scripts_without_spaces_are_found_by_bigrams(passage: str, query: str) -> None:
    terms = encoder.encode_query(query, "zh")
    assert len(terms.indices) == max(1, len(query) - 1)
    assert common(encoder.encode_passage(passage, "zh"), terms) == len(terms.indices)


def test_combining_marks_stay_inside_their_word() -> None:
    assert len(encoder.encode_query("हिन्दी", "xx").indices) == 1


def test_text_without_words_gives_an_empty_vector() -> None:
    assert encoder.encode_passage("… — !", "en") == SparseVector((), ())
    assert encoder.encode_query("", None) == SparseVector((), ())


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Turn the device off before you open the housing.", "en"),
        ("Schalten Sie das Gerät aus, bevor Sie das Gehäuse öffnen.", "de"),
        ("カバーを開ける前に電源を切ってください。", "ja"),
        ("打开外壳之前请先关闭设备电源。", "zh"),
        ("230 V / 50 Hz", "und"),
        ("", "und"),
    ],
)
def test_language_of_a_text(text: str, language: str) -> None:
    assert detect_language(text) == language


def test_a_part_has_the_documents_language_unless_it_is_clearly_in_another() -> None:
    german = "Schalten Sie die Pumpe aus, bevor Sie das Gehäuse öffnen, und warten Sie, bis der Motor kalt ist. "
    listing = "drwxr-xr-x root/root ./usr/share/ drwxr-xr-x root/root ./usr/share/doc/ -rw-r--r-- root/root copyright "
    assert detect_language_of_part(german * 3, "en") == "de"
    assert detect_language_of_part(german, "en") == "en"
    assert detect_language_of_part(listing * 3, "de") == "de"
    assert detect_language_of_part(german * 3, "und") == "de"
