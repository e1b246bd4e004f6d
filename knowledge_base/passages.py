"""From a hit to its surroundings: neighbouring chunks, a whole section, the outline of a source.

Search finds small pieces; a reader, or a language model, often needs what stands around them. Everything here reads
what is stored and shown, of one chunk set, in the order of the document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from knowledge_base.chunks import ChunkBox
from knowledge_base.payload import DEFAULT_TENANT, matches, of_source, shown

if TYPE_CHECKING:
    from knowledge_base.search import Hit
    from knowledge_base.store import KnowledgeBase


class Passage(BaseModel):
    """A chunk as it stands in its document."""

    chunk_index: int
    text: str
    section_path: list[str]
    pages: list[int]
    boxes: list[ChunkBox]


class OutlineEntry(BaseModel):
    """A section: its heading path from the outermost down, its first page, and how many chunks it holds itself."""

    section_path: list[str]
    page_number: int | None
    chunk_count: int


def neighbours(knowledge_base: KnowledgeBase, hit: Hit, count: int) -> list[Passage]:
    """The hit's chunk and up to `count` chunks on either side, in order; empty when its revision is gone meanwhile.

    Raises ValueError for a negative count.
    """
    from qdrant_client import models

    if count < 0:
        raise ValueError(f"a number of neighbours is at least 0, not {count}")
    window = models.Range(gte=hit.chunk_index - count, lte=hit.chunk_index + count)
    conditions = [
        *of_source(hit.source, hit.tenant),
        matches("revision", hit.revision),
        matches("fingerprint", hit.fingerprint),
        models.FieldCondition(key="metadata.chunk_index", range=window),
    ]
    return _passages(knowledge_base, conditions)


def read_section(
    knowledge_base: KnowledgeBase, source: str, section: str, *, tenant: str = DEFAULT_TENANT
) -> list[Passage]:
    """All passages of a section and of the sections inside it, in order; empty when there is no such section.

    `section`: a heading as `section_path` spells it; where none is spelt so, the first heading that begins with it, so
    that a number alone ("2.12") finds its section. Case counts. Of several sections with that heading, in different
    chapters, the first is read.
    """
    if not section.strip():
        raise ValueError("a section is named by its heading or number")
    passages = _passages(knowledge_base, of_source(source, tenant))
    paths = [passage.section_path for passage in passages]
    path = _path_to(paths, lambda heading: heading == section) or _path_to(paths, lambda each: _begins(each, section))
    return [passage for passage in passages if passage.section_path[: len(path)] == path] if path else []


def outline(knowledge_base: KnowledgeBase, source: str, *, tenant: str = DEFAULT_TENANT) -> list[OutlineEntry]:
    """The source's sections that hold text, in order; passages before the first heading have an empty path."""
    found: dict[tuple[str, ...], OutlineEntry] = {}
    for passage in _passages(knowledge_base, of_source(source, tenant)):
        path = tuple(passage.section_path)
        if path not in found:
            page_number = min(passage.pages, default=None)
            found[path] = OutlineEntry(section_path=passage.section_path, page_number=page_number, chunk_count=0)
        found[path].chunk_count += 1
    return list(found.values())


def _path_to(paths: Iterable[list[str]], is_wanted: Callable[[str], bool]) -> list[str]:
    """The path down to the first heading that is wanted; empty where none is."""
    for path in paths:
        for depth, heading in enumerate(path, start=1):
            if is_wanted(heading):
                return path[:depth]
    return []


def _begins(heading: str, start: str) -> bool:
    """Whether the heading begins with these words: "2.1" does not begin "2.12 CGI Programs"."""
    rest = heading.removeprefix(start)
    return rest != heading and not (rest[:1].isalnum() or (rest[:1] == "." and rest[1:2].isdigit()))


def _passages(knowledge_base: KnowledgeBase, conditions: list[Any]) -> list[Passage]:
    records = knowledge_base.scroll([shown(), *conditions], payload_fields=True)
    return sorted((_passage(record.payload) for record in records), key=lambda passage: passage.chunk_index)


def _passage(payload: dict[str, Any]) -> Passage:
    return Passage(text=payload["page_content"], **{key: payload["metadata"][key] for key in _FIELDS})


_FIELDS = ("chunk_index", "section_path", "pages", "boxes")
