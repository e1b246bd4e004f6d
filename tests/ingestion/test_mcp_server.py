"""The MCP server as a language model's client meets it: the official SDK's client, over stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ingestion.listing import list_sources
from ingestion.mcp_server import make_server
from ingestion.pipeline import ingest
from ingestion.settings import Settings
from ingestion.workspace import Workspace
from tests.ingestion.pages import text_pdf

mcp = pytest.importorskip("mcp")


@pytest.fixture
def ready(settings: Settings, tmp_path: Path) -> Settings:
    """Settings with one manual published."""
    with Workspace(settings) as workspace:
        workspace.ensure_buckets()
        path = tmp_path / "fan.pdf"
        path.write_bytes(text_pdf("The fan must be oiled with grade 32 oil."))
        with path.open("rb") as file:
            workspace.store.upload(settings.source_bucket, "fan.pdf", file, content_type="application/pdf")
        ingest(workspace, list_sources(workspace.store, settings.source_bucket), run_id="mcp")
    return settings


async def call(client: Any, name: str, **arguments: Any) -> Any:
    return await client.call_tool(name, arguments)


def values(result: Any) -> Any:
    assert not result.is_error, result.content
    content = result.structured_content
    return content.get("result", content) if isinstance(content, dict) else content


def test_a_client_over_stdio_searches_and_reads_with_citations(ready: Settings, tmp_path: Path) -> None:
    source = f"s3://{ready.source_bucket}/fan.pdf"
    secret = ready.s3_secret_key
    assert secret is not None
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OCR2KB_")},
        "OCR2KB_STATE_DIR": str(ready.state_dir),
        "OCR2KB_S3_ENDPOINT": str(ready.s3_endpoint),
        "OCR2KB_S3_ACCESS_KEY": str(ready.s3_access_key),
        "OCR2KB_S3_SECRET_KEY": secret.get_secret_value(),
        "OCR2KB_SOURCE_BUCKET": ready.source_bucket,
        "OCR2KB_ARTIFACT_BUCKET": ready.artifact_bucket,
    }
    parameters = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "ingestion", "mcp"], env=env, cwd=str(tmp_path)
    )

    async def use() -> None:
        async with mcp.Client(parameters, read_timeout_seconds=120) as client:
            tools = await client.list_tools()
            assert sorted(tool.name for tool in tools.tools) == ["list_sections", "read_section", "search"]
            (hit,) = values(await call(client, "search", question="Which oil does the fan take?", neighbour_count=1))
            assert (hit["source"], hit["section_path"], hit["pages"]) == (source, ["1 Operation"], [1])
            assert "grade 32 oil" in hit["text"]
            assert hit["boxes"][0]["page_number"] == 1
            read = values(await call(client, "read_section", source=source, section="1"))
            assert (read["section_path"], read["pages"]) == (["1 Operation"], [1])
            assert "grade 32 oil" in read["text"]
            assert values(await call(client, "list_sections", source=source)) == [
                {"section_path": ["1 Operation"], "page_number": 1, "chunk_count": 1}
            ]

    asyncio.run(use())


def test_a_wrong_section_is_an_error_that_says_what_to_do(ready: Settings) -> None:
    source = f"s3://{ready.source_bucket}/fan.pdf"

    async def use() -> list[str]:
        with Workspace(ready) as workspace:
            async with mcp.Client(make_server(workspace)) as client:
                wrong = await call(client, "read_section", source=source, section="9")
                unknown = await call(client, "list_sections", source="s3://x/y.pdf")
                empty = await call(client, "search", question=" ")
        assert wrong.is_error
        assert unknown.is_error
        assert empty.is_error
        return [json.dumps([part.text for part in result.content]) for result in (wrong, unknown, empty)]

    said = asyncio.run(use())
    assert "has no section '9'. list_sections names those it has." in said[0]
    assert "there is no manual s3://x/y.pdf" in said[1]
    assert "needs a question" in said[2]
