"""The knowledge base for language models: an MCP server (Model Context Protocol) with three tools, on the official SDK.

Answers carry source, section, pages and boxes, so that a model can cite them. The index is opened for each call only:
in local mode others can use it in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ingestion.errors import IngestionError, SettingsError
from ingestion.workspace import Workspace

if TYPE_CHECKING:
    from mcp.server import MCPServer

MOST_RESULTS = 20

INSTRUCTIONS = (
    "Scanned manuals, read and cut into passages. Search first; read the section of a hit when the passage alone does "
    "not answer. Cite the source with its page numbers."
)


def make_server(workspace: Workspace) -> MCPServer:
    """The server, not yet running. Raises SettingsError where the extra `mcp` is not installed."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise SettingsError("the MCP server needs the extra `mcp`: pip install 'ocr2-kb[mcp]'") from error
    from knowledge_base import passages
    from knowledge_base.errors import KnowledgeBaseError
    from knowledge_base.search import SearchFilters
    from knowledge_base.search import search as search_knowledge_base

    @contextmanager
    def told_errors() -> Iterator[None]:
        # the SDK passes on the text of a ToolError only
        try:
            yield
        except (ValueError, IngestionError, KnowledgeBaseError) as error:
            raise ToolError(str(error)) from error

    server = MCPServer("ocr2kb", instructions=INSTRUCTIONS)
    tenant = workspace.settings.tenant

    def search(
        question: str,
        result_count: int = 5,
        source: str | None = None,
        section: str | None = None,
        neighbour_count: int = 0,
    ) -> list[dict[str, Any]]:
        """Find passages that answer a question, best first, each with its source, section path, pages and boxes.

        source: only this manual, as named in an earlier result (s3://bucket/key). section: only under a heading that
        begins with this. neighbour_count: also give this many passages before and after each hit.
        """
        filters = SearchFilters(tenant=tenant, source=source or (), section=section or None)
        embedder, sparse_encoder = workspace.embedder, workspace.sparse_encoder
        with told_errors(), workspace.open_knowledge_base() as knowledge_base:
            hits = search_knowledge_base(
                knowledge_base,
                embedder,
                sparse_encoder,
                question,
                k=max(1, min(result_count, MOST_RESULTS)),
                filters=filters,
                reranker=workspace.reranker,
            )
            results = []
            for hit in hits:
                fields = {"source", "title", "section_path", "pages", "boxes", "text", "score", "language"}
                result = hit.model_dump(mode="json", include=fields)
                if neighbour_count > 0:
                    around = passages.neighbours(knowledge_base, hit, min(neighbour_count, MOST_RESULTS))
                    result["text"] = "\n\n".join(passage.text for passage in around) or hit.text
                    result["pages"] = sorted({page for passage in around for page in passage.pages} or hit.pages)
                results.append(result)
        return results

    def read_section(source: str, section: str) -> dict[str, Any]:
        """Read a whole section of a manual, its subsections included. section: its heading, or its number alone."""
        with told_errors(), workspace.open_knowledge_base() as knowledge_base:
            found = passages.read_section(knowledge_base, source, section, tenant=tenant)
        if not found:
            raise ToolError(f"{source} has no section {section!r}. list_sections names those it has.")
        return {
            "source": source,
            "section_path": found[0].section_path,
            "pages": sorted({page for passage in found for page in passage.pages}),
            "text": "\n\n".join(passage.text for passage in found),
        }

    def list_sections(source: str) -> list[dict[str, Any]]:
        """The sections of a manual in order, with their first pages."""
        with told_errors(), workspace.open_knowledge_base() as knowledge_base:
            entries = passages.outline(knowledge_base, source, tenant=tenant)
        if not entries:
            raise ToolError(f"there is no manual {source}. Sources are named in search results.")
        return [entry.model_dump(mode="json") for entry in entries]

    for tool in (search, read_section, list_sections):
        server.tool()(tool)
    return server
