"""Search results as people read them, and the filters they type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from knowledge_base.passages import OutlineEntry, Passage
    from knowledge_base.search import Hit, SearchFilters

EXCERPT_CHARACTERS = 300


def answer_lines(rank: int, hit: Hit) -> list[str]:
    """One answer: where it stands (manual, section path, page, box) and how it begins."""
    section = " › ".join(hit.section_path) or "(before the first heading)"
    places = ", ".join(
        f"page {box.page_number} box {[round(value) for value in box.bbox_norm]}" for box in hit.boxes[:3]
    )
    more = f" and {len(hit.boxes) - 3} more boxes" if len(hit.boxes) > 3 else ""
    text = " ".join(hit.text.split())
    excerpt = text if len(text) <= EXCERPT_CHARACTERS else text[: EXCERPT_CHARACTERS - 1].rstrip() + "…"
    return [f"{rank}. {hit.title}  ({hit.source})", f"   {section}", f"   {places}{more}", f"   {excerpt}"]


def context_lines(passages: Sequence[Passage]) -> list[str]:
    """What stands around an answer."""
    return [line for passage in passages for line in ("", *_indented(passage.text))]


def passage_lines(passages: Sequence[Passage]) -> list[str]:
    """A section to read: its headings where they change, its pages, its text."""
    lines: list[str] = []
    path: list[str] = []
    for passage in passages:
        if passage.section_path != path:
            path = passage.section_path
            pages = ", ".join(map(str, passage.pages))
            lines += [*([""] if lines else []), f"{' › '.join(path) or '(before the first heading)'}  (page {pages})"]
        lines += ["", passage.text]
    return lines


def outline_lines(entries: Sequence[OutlineEntry]) -> list[str]:
    """One line a section, indented by its level."""
    return [
        f"{'  ' * (len(entry.section_path) - 1)}{entry.section_path[-1]}  (page {entry.page_number})"
        if entry.section_path
        else f"(before the first heading)  (page {entry.page_number})"
        for entry in entries
    ]


def _indented(text: str) -> list[str]:
    return [f"   | {line}" for line in text.splitlines()]


def parse_filters(pairs: list[str], tenant: str) -> SearchFilters:
    """`NAME=VALUE` words as filters: source, section, language, label, page (a number or FIRST-LAST).

    Raises ValueError saying what is wrong.
    """
    from knowledge_base.search import SearchFilters

    fields: dict[str, object] = {"tenant": tenant}
    labels: list[str] = []
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not value:
            raise ValueError(f"{pair!r} is not NAME=VALUE")
        if name == "page":
            first, _, last = value.partition("-")
            if not first.isdigit() or not (last or first).isdigit():
                raise ValueError(f"page is a number or FIRST-LAST, not {value!r}")
            fields["pages"] = (int(first), int(last or first))
        elif name == "label":
            labels.append(value)
        elif name in ("source", "section", "language"):
            fields[name] = value
        else:
            raise ValueError(f"unknown filter {name!r}; known are source, section, language, label and page")
    return SearchFilters.model_validate({**fields, "labels": tuple(labels)})
