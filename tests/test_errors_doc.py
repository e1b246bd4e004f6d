"""docs/errors.md names every code that a document or page can be refused with, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Calls that carry a code: name of what is called → position of the code among its arguments.
CODE_POSITION = {"SourceRefused": 0, "PageUnreadable": 0, "_refused": 0, "DocumentRefused": 2}


def codes_in(source: str) -> Iterator[str]:
    """Literal codes given to the calls above, to `code=`, and under the key "code" of a dict."""
    for node in ast.walk(ast.parse(source)):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CODE_POSITION:
                values += node.args[CODE_POSITION[name] :][:1] + [k.value for k in node.keywords if k.arg == "code"]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            values += [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "code"]
        yield from (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def codes_of_the_source() -> set[str]:
    files = [path for package in ("ocr2_core", "ingestion") for path in (ROOT / package).rglob("*.py")]
    return {code for path in files for code in codes_in(path.read_text(encoding="utf-8"))}


def codes_of_the_page() -> list[str]:
    """First cells of the tables whose head is `| code |`."""
    codes: list[str] = []
    in_table = False
    for line in (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| code |"):
            in_table = True
        elif not line.startswith("|"):
            in_table = False
        elif in_table:
            codes += re.findall(r"^\| `([a-z_]+)` \|", line)
    return codes


def test_every_code_is_explained_once_and_exists() -> None:
    source, page = codes_of_the_source(), codes_of_the_page()
    assert source - set(page) == set(), "raised in the source, missing in docs/errors.md"
    assert set(page) - source == set(), "in docs/errors.md, raised nowhere"
    assert len(page) == len(set(page))


def test_the_search_finds_each_way_of_giving_a_code() -> None:
    source = """
raise SourceRefused("one", "cause", "remedy")
raise errors.DocumentRefused(source, "read", "two", "cause", "remedy")
raise SourceRefused(code="three", cause="c", remedy="r")
send({"code": "four"})
_refused("five", "c", "r")
print("six")
"""
    assert set(codes_in(source)) == {"one", "two", "three", "four", "five"}
