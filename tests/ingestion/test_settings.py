"""Where settings come from and what wrong ones say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingestion.errors import SettingsError
from ingestion.job import JobOptions
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from ocr2_core.errors import EngineError


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_environment_wins_over_files_and_arguments_over_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "embedded.env").write_text(
        "OCR2KB_SOURCE_BUCKET=from-embedded\nOCR2KB_TENANT=from-embedded\nOCR2KB_COLLECTION=from-embedded\n"
    )
    (tmp_path / ".env").write_text("OCR2KB_TENANT=from-dotenv\nOCR2KB_COLLECTION=from-dotenv\nOTHER=ignored\n")
    monkeypatch.setenv("OCR2KB_STATE_DIR", str(state))
    monkeypatch.setenv("OCR2KB_COLLECTION", "from-environment")
    settings = Settings.load()
    assert (settings.source_bucket, settings.tenant, settings.collection) == (
        "from-embedded",
        "from-dotenv",
        "from-environment",
    )
    assert Settings.load(collection="given", tenant=None).collection == "given"
    assert settings.local_index_path == state / "qdrant"


def test_a_wrong_setting_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCR2KB_MAX_FAILED_PAGE_RATIO", "2.5")
    monkeypatch.setenv("OCR2KB_ENGINE", "tesseract")
    with pytest.raises(SettingsError) as caught:
        Settings.load()
    assert "OCR2KB_MAX_FAILED_PAGE_RATIO" in str(caught.value)
    assert "OCR2KB_ENGINE" in str(caught.value)


def test_an_endpoint_must_be_a_url() -> None:
    with pytest.raises(SettingsError, match=r"s3_endpoint must be a URL such as http://127\.0\.0\.1:9000"):
        Settings.load(s3_endpoint="minio:9000")


def test_the_served_engine_needs_its_url_and_takes_its_settings() -> None:
    with (
        Workspace(Settings.load()) as workspace,
        pytest.raises(SettingsError, match=r"the engine `served` needs OCR2KB_SERVED_URL"),
    ):
        workspace.engine(JobOptions(engine="served"))
    with pytest.raises(SettingsError, match="served_url must be a URL"):
        Settings.load(served_url="gpu-host:8000")
    settings = Settings.load(
        served_url="http://127.0.0.1:8000/v1", served_model="Unlimited-OCR", served_pages_per_request=3
    )
    with Workspace(settings) as workspace:
        identity = workspace.engine(JobOptions(engine="served")).identity()
    assert (identity["engine"], identity["model"], identity["pages_per_request"]) == ("served", "Unlimited-OCR", 3)


def test_the_ocr2_engine_needs_its_model_and_takes_its_settings(tmp_path: Path) -> None:
    with Workspace(Settings.load()) as workspace, pytest.raises(EngineError, match="OCR2KB_MODEL_PATH"):
        workspace.engine(JobOptions(engine="ocr2"))
    with pytest.raises(SettingsError, match="chunk_overlap"):
        Settings.load(page_chunk_size=3, chunk_overlap=3)
    settings = Settings.load(model_path=str(tmp_path), preset="paper", chunk_overlap=2, boundary="carry")
    with Workspace(settings) as workspace:
        identity = workspace.engine(JobOptions(engine="ocr2")).identity()
    assert (identity["engine"], identity["page_chunk_size"], identity["chunk_overlap"]) == ("ocr2", 105, 2)
    assert identity["boundary"] == "carry"
