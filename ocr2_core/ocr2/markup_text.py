"""What stands inside one region of the model's output: plain text, LaTeX or a table in HTML."""

from __future__ import annotations

import re
from dataclasses import dataclass

# sentence ends and other control tokens, spelt with ASCII or full-width bars
_CONTROL = re.compile(r"<[|｜](?:end|begin)[▁_ ]of[▁_ ]sentence[|｜]>|<[|｜][▁_]?pad[▁_]?[|｜]>|<\|/?grounding\|>")
_LOOSE_TAG = re.compile(r"<\|/?(?:det|ref)\|>")
_TABLE = re.compile(r"<table\b.*?(?:</table>|\Z)", re.DOTALL | re.IGNORECASE)
_TABLE_TAG = re.compile(r"<(/?)(table|thead|tbody|tr|td|th)\b[^>]*>", re.IGNORECASE)
_UNFINISHED_TAG = re.compile(r"<[^<>]*\Z")
_MATH_SIGNS = ((r"\[", r"\]"), (r"\(", r"\)"), ("$$", "$$"), ("$", "$"))


def strip_control_tokens(text: str) -> str:
    return _CONTROL.sub("", text)


def as_plain_text(text: str, *, keep_lines: bool = False) -> str:
    """Without stray tags, with single spaces; line breaks stay where `keep_lines` asks for them (code)."""
    text = _LOOSE_TAG.sub("", text)
    if keep_lines:
        return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return " ".join(text.split())


def as_latex(text: str) -> str:
    """The formula without the signs that set it off from text."""
    for opening, closing in _MATH_SIGNS:
        inner = text[len(opening) : len(text) - len(closing)]
        if len(text) >= len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            # two formulas on one line are not one
            return text if opening in inner else inner.strip()
    return text


@dataclass(frozen=True, slots=True)
class TableText:
    """HTML of a table, empty where there was none; `is_mended` where its end was missing."""

    html: str
    is_mended: bool


def split_table(text: str) -> tuple[str, TableText, str]:
    """Text before the first table, the table, and everything after it, which may hold more tables."""
    found = _TABLE.search(text)
    if found is None:
        return as_plain_text(text), TableText("", False), ""
    html = found[0]
    is_mended = not html.lower().endswith("</table>")
    if is_mended:
        html = _close(_UNFINISHED_TAG.sub("", html))
    after = text[found.end() :]
    return as_plain_text(text[: found.start()]), TableText(" ".join(html.split()), is_mended), after.strip()


def _close(html: str) -> str:
    """Close what is open, innermost first."""
    still_open: list[str] = []
    for tag in _TABLE_TAG.finditer(html):
        name = tag[2].lower()
        if not tag[1]:
            still_open.append(name)
        elif name in still_open:
            while still_open.pop() != name:
                pass
    return html.rstrip() + "".join(f"</{name}>" for name in reversed(still_open))
