"""The embedded index: a process may be killed at any write, errors are named, and what is not known is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from knowledge_base.edge_models import edge_filter
from knowledge_base.errors import KnowledgeBaseError
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import KnowledgeBase, QdrantOptions, open_knowledge_base
from tests.knowledge_base.builders import Loader, make_chunks, make_revision

SOURCE = "manuals/pump.pdf"
OLD = ("old one", "old two", "old three")
NEW = ("new one", "new two", "old three", "new four", "new five")

# Loads the new revision over the old one and dies, as by SIGKILL, behind the given number of the engine's writes.
LOADER = """
import os, sys
from pathlib import Path
from knowledge_base.embedded_index import EdgeCollection
from knowledge_base.sparse import SparseEncoder
from knowledge_base.store import QdrantOptions, open_knowledge_base
from tests.knowledge_base.test_embedded_index import NEW, load_words, words

left = int(sys.argv[2])
update = EdgeCollection._update

def counted(self, operation):
    global left
    update(self, operation)
    left -= 1
    if left == 0:
        os._exit(9)

with open_knowledge_base(QdrantOptions(path=Path(sys.argv[1]), upload_batch_size=2)) as knowledge_base:
    EdgeCollection._update = counted
    load_words(knowledge_base, "b" * 64, NEW)
"""


class Vectors:
    """Three numbers a text: no model has to be loaded in each process."""

    dimension = 3
    model_name = "three numbers"

    def identity(self) -> dict[str, Any]:
        return {"model": "three numbers", "dimension": 3}

    def encode_passages(self, texts: list[str]) -> Any:
        import numpy as np

        rows = np.array([[len(text), text.count("o") + 1, text.count("e") + 1] for text in texts], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def load_words(knowledge_base: KnowledgeBase, revision: str, texts: tuple[str, ...]) -> None:
    vectors: Any = Vectors()
    knowledge_base.ensure_collection(vectors, SparseEncoder())
    Loader(vectors, SparseEncoder())(knowledge_base, make_revision(SOURCE, revision), make_chunks(*texts))


def words(knowledge_base: KnowledgeBase) -> list[str]:
    from knowledge_base.payload import of_source, shown

    records = knowledge_base.scroll([shown(), *of_source(SOURCE, "default")], payload_fields=True)
    return sorted(record.payload["page_content"] for record in records)


@pytest.mark.parametrize(
    ("writes", "seen"),
    [
        pytest.param(1, [OLD], id="first batch"),
        pytest.param(3, [OLD], id="last batch"),
        pytest.param(4, [OLD, NEW], id="new ones shown"),
        pytest.param(5, [NEW], id="old ones deleted"),
    ],
)
def test_a_killed_loader_leaves_whole_revisions_and_loading_again_ends_the_same(
    writes: int, seen: list[tuple[str, ...]], tmp_path: Path
) -> None:
    options = QdrantOptions(path=tmp_path / "index")
    with open_knowledge_base(options) as knowledge_base:
        load_words(knowledge_base, "a" * 64, OLD)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", LOADER, str(tmp_path / "index"), str(writes)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 9, done.stderr
    with open_knowledge_base(options) as knowledge_base:
        assert words(knowledge_base) == sorted(text for texts in seen for text in texts)
        load_words(knowledge_base, "b" * 64, NEW)
        assert words(knowledge_base) == sorted(NEW)
        assert len(knowledge_base.point_ids(SOURCE)) == len(NEW)


def test_damaged_files_are_an_error_that_says_where(tmp_path: Path) -> None:
    options = QdrantOptions(path=tmp_path / "index")
    with open_knowledge_base(options) as knowledge_base:
        load_words(knowledge_base, "a" * 64, OLD)
    (config,) = (tmp_path / "index").rglob("edge_config.json")
    config.write_text("{")
    with (
        open_knowledge_base(options) as knowledge_base,
        pytest.raises(KnowledgeBaseError, match=r"the local knowledge base .*index cannot be read or written"),
    ):
        knowledge_base.count()


def test_a_condition_that_is_not_known_is_never_left_out() -> None:
    geo = models.FieldCondition(key="a", geo_radius=models.GeoRadius(center=models.GeoPoint(lon=1, lat=1), radius=1))
    for unknown in (
        models.Filter(must=[geo]),
        models.Filter(must_not=[models.FieldCondition(key="a", match=models.MatchText(text="x"))]),
        models.Filter(
            must=[models.FieldCondition(key="a", match=models.MatchValue(value=1), range=models.Range(gt=1))]
        ),
        models.Filter(min_should=models.MinShould(conditions=[], min_count=1)),
    ):
        with pytest.raises(NotImplementedError, match="the embedded index does not know"):
            edge_filter(unknown)
