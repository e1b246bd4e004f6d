from __future__ import annotations

from collections.abc import Callable

from ocr2_core.blocks import Block, PageBlocks
from structure_recovery.markdown import to_markdown
from structure_recovery.recover import recover

Maker = Callable[..., Block]


def test_markdown_of_a_page_with_everything(block: Maker, page: Callable[..., PageBlocks], prose: Maker) -> None:
    def heading(text: str, y_pt: float, size_pt: float) -> Block:
        return block(text, y_pt, size_pt=size_pt, bold=True, label="section_header")

    pages = [
        page(
            0,
            heading("1 Setup", 60, 18),
            heading("1.1 Steps", 100, 14),
            prose(130),
            block("• Open the lid.", 200, label="list_item"),
            block("2. Close it | tight.", 220, label="list_item"),
            block("make all\n  make test", 250, label="code", lines=["make all", "make test"]),
            block("E = mc^2", 300, label="formula"),
            block("Table 1: Torques", 340, label="caption"),
            block(
                "<table><tr><td>a|b</td><td>3</td></tr><tr><td>M6</td><td>9</td></tr></table>",
                360,
                label="table",
                width_pt=300,
            ),
            block(
                "<table><tr><td colspan='2'>a &lt; b</td></tr><tr><td>1</td><td>2</td></tr></table>",
                420,
                label="table",
                width_pt=300,
            ),
            block("# not a heading", 480, label="footnote"),
            block("7", 780, x_pt=295, label="page_footer"),
        )
    ]
    row = "Some words of running text that fill the line to its very end and then"
    assert to_markdown(recover(pages, name="m").document) == "\n".join(
        [
            "# 1 Setup",
            "",
            "## 1.1 Steps",
            "",
            f"{row} {row} {row}.",
            "",
            "- Open the lid.",
            "2. Close it | tight.",
            "",
            "```",
            "make all",
            "  make test",
            "```",
            "",
            "$$",
            "E = mc^2",
            "$$",
            "",
            "Table 1: Torques",
            "",
            "| a\\|b | 3 |",
            "| --- | --- |",
            "| M6 | 9 |",
            "",
            "<table>",
            '<tr><td colspan="2">a &lt; b</td></tr>',
            "<tr><td>1</td><td>2</td></tr>",
            "</table>",
            "",
            "\\# not a heading",
            "",
        ]
    )
