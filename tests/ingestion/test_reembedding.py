"""Another embedding model, with real models, a real object store and a real index: compared, switched, undone."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoTokenizer, BertConfig, BertModel, set_seed
from typer.testing import CliRunner

from ingestion.audit import audit
from ingestion.cli import app
from ingestion.errors import ReembeddingRefused
from ingestion.evaluation import make_questions
from ingestion.job import JobStatus
from ingestion.listing import list_sources
from ingestion.pipeline import ingest
from ingestion.reembedding import question_set, reembed, settings_for
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from knowledge_base.embedding import PACKAGED_MODEL, Embedder, _packaged_model_path
from knowledge_base.errors import CollectionMismatch
from knowledge_base.generations import list_collections
from knowledge_base.search import search
from knowledge_base.store import QdrantOptions, open_knowledge_base
from tests.ingestion.pages import text_pdf
from tests.ingestion.test_evaluation import manual_pdf
from tests.knowledge_base.builders import Loader, make_chunks, make_revision

KEYS = ("fan.pdf", "mower.pdf")


@pytest.fixture(scope="module")
def short_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The packaged model with room for 64 tokens: another identity, other chunks, and it knows what words mean."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(_packaged_model_path(), device="cpu")
    model.max_seq_length = 64
    folder = tmp_path_factory.mktemp("models") / "short-minilm"
    model.save(str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def senseless_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small model with random weights: its vectors mean nothing."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    folder = tmp_path_factory.mktemp("models") / "senseless"
    tokenizer = AutoTokenizer.from_pretrained(_packaged_model_path())
    set_seed(1)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    transformer = Transformer(str(folder / "bert"), max_seq_length=256)
    SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").save(str(folder / "model"))
    return str(folder / "model")


@pytest.fixture
def workspace(settings: Settings) -> Iterator[Workspace]:
    with Workspace(settings) as opened:
        opened.ensure_buckets()
        for key, data in zip(KEYS, (text_pdf("The fan must be oiled with grade 46 oil."), manual_pdf()), strict=True):
            opened.store.upload(settings.source_bucket, key, io.BytesIO(data), content_type="application/pdf")
        ingest_all(opened)
        yield opened


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each call of the model was given."""
    counts: list[int] = []
    encode = Embedder.encode_passages

    def counted(self: Embedder, texts: list[str]) -> object:
        counts.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(Embedder, "encode_passages", counted)
    return counts


def ingest_all(workspace: Workspace) -> list[JobStatus]:
    jobs = ingest(workspace, list_sources(workspace.store, workspace.settings.source_bucket), run_id="run")
    return [job.status for job in jobs]


def first_hit(workspace: Workspace, question: str) -> str:
    with workspace.open_knowledge_base() as knowledge_base:
        hits = search(knowledge_base, workspace.embedder, workspace.sparse_encoder, question, k=1)
    return hits[0].source.rpartition("/")[2]


def collections(workspace: Workspace) -> list[tuple[str, bool, str]]:
    with workspace.open_knowledge_base() as knowledge_base:
        return [(each.name, each.is_live, each.model) for each in list_collections(knowledge_base)]


def test_a_new_model_takes_over_and_going_back_embeds_nothing(
    workspace: Workspace, short_model: str, embedded: list[int]
) -> None:
    questions = question_set(workspace)
    assert len(questions) == 4
    with Workspace(settings_for(workspace.settings, short_model)) as new:
        report = reembed(workspace, new, run_id="change", questions=questions)
        assert report.is_switched
        assert (report.collection, report.replaced, report.source_count) == ("manuals__2", "manuals__1", 2)
        assert report.check is not None
        assert (report.check.question_count, report.check.before.mean, report.check.change.mean) == (4, 1.0, 0.0)
        assert collections(new) == [("manuals__1", False, "all-MiniLM-L6-v2"), ("manuals__2", True, "short-minilm")]
        # the chunks are cut for the new model, and all that follows agrees with what is published
        assert report.point_count > 5
        assert first_hit(new, "fill in grade 32 oil") == "mower.pdf"
        assert ingest_all(new) == [JobStatus.UNCHANGED] * 2
        assert audit(new, run_id="audit").is_clean
        with pytest.raises(CollectionMismatch, match=r"manuals__2 holds vectors of short-minilm.*ocr2kb reembed"):
            first_load(workspace)

        embedded.clear()
        back = reembed(new, workspace, run_id="back")
    assert embedded == []
    assert (back.collection, back.is_switched, back.point_count) == ("manuals__1", True, 5)
    assert ingest_all(workspace) == [JobStatus.UNCHANGED] * 2
    assert audit(workspace, run_id="audit").is_clean
    assert first_hit(workspace, "fill in grade 32 oil") == "mower.pdf"


def first_load(workspace: Workspace) -> None:
    with workspace.open_knowledge_base() as knowledge_base:
        knowledge_base.ensure_collection(workspace.embedder, workspace.sparse_encoder)


def test_a_worse_model_is_refused_and_what_was_made_is_kept(
    workspace: Workspace, senseless_model: str, embedded: list[int]
) -> None:
    questions = [
        *make_questions(workspace),
        *(
            question.model_copy(update={"question": meaning})
            for question, meaning in zip(
                make_questions(workspace),
                ("lubricant replacement", "dust removal", "strap tautness", "frost damage prevention"),
                strict=True,
            )
        ),
    ]
    with Workspace(settings_for(workspace.settings, senseless_model)) as new:
        assert new.embedder.dimension == 32
        with pytest.raises(
            ReembeddingRefused, match=r"recall@5 of hybrid search fell from .* readers still see manuals__1"
        ):
            reembed(workspace, new, run_id="worse", questions=questions, most_loss=-2.0)
        assert collections(workspace)[0] == ("manuals__1", True, "all-MiniLM-L6-v2")
        assert first_hit(workspace, "oil for the fan") == "fan.pdf"
        embedded.clear()
        report = reembed(workspace, new, run_id="anyway", questions=questions, most_loss=1.0)
        assert (report.is_switched, embedded) == (True, [])
        assert report.check is not None
        assert report.check.change.mean <= 0.0
        with pytest.raises(ReembeddingRefused, match="manuals__2 is live and holds vectors of model already"):
            reembed(workspace, new, run_id="again")


def test_a_run_that_died_goes_on_and_a_bad_document_stops_only_the_switch(
    workspace: Workspace, short_model: str, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    import ingestion.reembedding as module

    put = module.put

    def die(*arguments: object) -> None:
        put(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with Workspace(settings_for(workspace.settings, short_model)) as new:
        monkeypatch.setattr(module, "put", die)
        with pytest.raises(KeyboardInterrupt):
            reembed(workspace, new, run_id="died")
        monkeypatch.setattr(module, "put", put)
        assert len(embedded) == 1
        manifest = workspace.manifests.read(workspace.settings.source_bucket, "mower.pdf")
        assert manifest.published is not None
        published = manifest.published
        key = f"{published.revision}/structure-{published.fingerprints.structure}/document.json"
        document = workspace.artifacts.read(key)
        assert document is not None
        workspace.artifacts.remove(key)

        report = reembed(workspace, new, run_id="without")
        assert (report.is_switched, list(report.failed)) == (False, [manifest.uri])
        assert f"{key} does not exist" in report.failed[manifest.uri]
        assert len(embedded) == 1

        workspace.artifacts.write(key, document, "application/json")
        report = reembed(workspace, new, run_id="whole")
        assert (report.is_switched, report.failed, len(embedded)) == (True, {}, 2)


def test_other_tenants_sources_do_not_vanish(workspace: Workspace, short_model: str) -> None:
    load = Loader(workspace.embedder, workspace.sparse_encoder)
    with workspace.open_knowledge_base() as knowledge_base:
        load(knowledge_base, make_revision("s3://elsewhere/a.pdf", tenant="acme"), make_chunks("their text"))
    with (
        Workspace(settings_for(workspace.settings, short_model)) as new,
        pytest.raises(ReembeddingRefused, match=r"lacks, such as s3://elsewhere/a.pdf of tenant 'acme'"),
    ):
        reembed(workspace, new, run_id="alone")


def test_a_changed_manual_embeds_only_what_is_new(workspace: Workspace, embedded: list[int]) -> None:
    data = manual_pdf(extra=("5 Disposing of the battery", "Hand the battery in at a collecting point of your town."))
    file = io.BytesIO(data)
    workspace.store.upload(workspace.settings.source_bucket, "mower.pdf", file, content_type="application/pdf")
    assert ingest_all(workspace) == [JobStatus.UNCHANGED, JobStatus.PUBLISHED]
    assert embedded == [1]
    # the same bytes under another key, and a forced run, embed nothing at all
    copy = io.BytesIO(data)
    workspace.store.upload(workspace.settings.source_bucket, "mower-copy.pdf", copy, content_type="application/pdf")
    assert ingest_all(workspace) == [JobStatus.UNCHANGED, JobStatus.PUBLISHED, JobStatus.UNCHANGED]
    assert embedded == [1]


def test_the_commands(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short_model: str) -> None:
    settings = workspace.settings
    for name in ("state_dir", "s3_endpoint", "s3_access_key", "source_bucket", "artifact_bucket"):
        monkeypatch.setenv(f"OCR2KB_{name.upper()}", str(getattr(settings, name)))
    monkeypatch.setenv("OCR2KB_S3_SECRET_KEY", settings.s3_secret_key.get_secret_value())
    cli = CliRunner()

    filled = cli.invoke(app, ["reembed", short_model, "--no-switch"])
    assert filled.exit_code == 0, filled.stderr
    assert "readers still see manuals__1" in filled.stdout
    listed = cli.invoke(app, ["collections"])
    assert listed.stdout.splitlines()[0] == f"live  manuals__1  5 points  {PACKAGED_MODEL}"
    refused = cli.invoke(app, ["collections", "--drop", "manuals__1"])
    assert (refused.exit_code, "manuals__1 is live" in refused.stderr) == (4, True)
    assert (
        cli.invoke(app, ["collections", "--drop", "manuals__2"]).stdout.splitlines() == listed.stdout.splitlines()[:1]
    )
    again = cli.invoke(app, ["collections", "--drop", "manuals__2"])
    assert (again.exit_code, "has no collection manuals__2" in again.stderr) == (4, True)

    taken = cli.invoke(app, ["snapshot", "-o", str(tmp_path / "kept")])
    assert taken.exit_code == 0, taken.stderr
    (archive,) = (tmp_path / "kept").iterdir()
    assert taken.stdout == f"{archive}\n"
    with tarfile.open(archive) as tar:
        assert not [name for name in tar.getnames() if "lock" in name]
        tar.extractall(tmp_path / "restored", filter="data")
    with open_knowledge_base(QdrantOptions(path=tmp_path / "restored" / "qdrant")) as restored:
        hits = search(restored, workspace.embedder, workspace.sparse_encoder, "grade 46 oil", k=1)
    assert hits[0].source.endswith("fan.pdf")
