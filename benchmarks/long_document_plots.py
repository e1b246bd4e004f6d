"""Plots of `bench_long_documents`: character error rate and KV bytes over the pages of a document, as PNG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_COLOURS = {"full": "#888888", "r-swa": "#1f77b4", "sr-swa free": "#ff7f0e", "sr-swa trained": "#2ca02c"}
_STYLES = {"one": ":", "restart": "-", "carry": "--", "recompute": "-."}
# 100 % of wrong text would flatten everything else
_LARGEST_CER = 100.0


def draw(results: Sequence[Any], folder: Path) -> list[Path]:
    """Write `long_documents_cer.png` and `long_documents_kv.png`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    series: dict[str, list[Any]] = defaultdict(list)
    for row in results:
        series[row.variant].append(row)
    written = []
    for name, label, value in (
        ("cer", "character error rate, %", lambda row: max(0.05, min(_LARGEST_CER, row.cer * 100))),
        ("kv", "peak KV, MB a document", lambda row: row.kv_bytes / 1e6),
    ):
        figure, axes = plt.subplots(figsize=(8, 4.5), dpi=120)
        for variant, rows in series.items():
            attention = max((known for known in _COLOURS if variant.startswith(known)), key=len)
            way = variant.removeprefix(attention).split()[0]
            axes.plot(
                [row.pages for row in rows],
                [value(row) for row in rows],
                _STYLES[way],
                color=_COLOURS[attention],
                marker=".",
                label=variant,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("pages of the document")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=6, ncols=2)
        figure.tight_layout()
        written.append(folder / f"long_documents_{name}.png")
        figure.savefig(written[-1])
        plt.close(figure)
    return written
