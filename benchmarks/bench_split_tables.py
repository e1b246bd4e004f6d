"""Are tables that pages cut put together again, and no others?

    python -m benchmarks.bench_split_tables [--seed 0]

The 60 cases of `benchmarks/split_tables.py` go through structure recovery. Beside it stand the two simplest ways:
joining nothing, and joining whatever follows with the same number of columns. Row recall: rows found cell for cell;
TEDS: mean over the true tables, each beside the predicted one it shares most rows with; wrong merges: predicted tables
with rows of two true ones. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict

from benchmarks.split_tables import Case, Rows, cases, has_wrong_merge, row_recall, teds
from structure_recovery.recover import RecoveryOptions, recover
from structure_recovery.tables import parse_table


def recovered_tables(case: Case, *, join: bool = True) -> list[Rows]:
    """The document's tables."""
    document = recover(case.pages, name="split", options=RecoveryOptions(join_across_breaks=join)).document
    return [[[cell.text for cell in row] for row in table.data.grid] for table in document.tables]


def naive_tables(case: Case) -> list[Rows]:
    """Neighbours of one width joined, rows equal to the first row left out."""
    tables: list[Rows] = []
    for page in case.pages:
        for block in page.blocks:
            if block.label != "table":
                continue
            rows = parse_table(block.text).texts()
            if tables and len(tables[-1][0]) == len(rows[0]):
                tables[-1] += [row for row in rows if row != tables[-1][0]]
            else:
                tables.append(rows)
    return tables


def scores(case: Case, predicted: list[Rows]) -> dict[str, float]:
    """Of one case."""
    similarities = [max((teds(table, guess) for guess in predicted), default=0.0) for table in case.truth]
    return {
        "row_recall": row_recall(case.truth, predicted),
        "teds": statistics.mean(similarities),
        "wrong_merge": float(has_wrong_merge(case.truth, predicted)),
        "table_count_right": float(len(predicted) == len(case.truth)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    made = cases(arguments.seed)
    ways = {
        "structure recovery": recovered_tables,
        "nothing joined": lambda case: recovered_tables(case, join=False),
        "same width joined": naive_tables,
    }
    results: dict[str, dict[str, float]] = {}
    print(f"{'':22}{'row recall':>12}{'TEDS':>8}{'wrong merges':>14}{'right number':>14}")
    for name, way in ways.items():
        rows = [scores(case, way(case)) for case in made]
        means = {measure: statistics.mean(row[measure] for row in rows) for measure in rows[0]}
        results[name] = {**means, "wrong_merges": sum(row["wrong_merge"] for row in rows)}
        told = f"{means['row_recall']:12.3f}{means['teds']:8.3f}{results[name]['wrong_merges']:14.0f}"
        print(f"{name:22}{told}{means['table_count_right']:14.3f}")
        if name == "structure recovery":
            by_kind: dict[str, list[float]] = defaultdict(list)
            for case, row in zip(made, rows, strict=True):
                by_kind[case.kind].append(row["teds"])
            for kind, values in by_kind.items():
                print(f"  {kind:30}{statistics.mean(values):10.3f}")
    print(json.dumps({"cases": len(made), "seed": arguments.seed, **results}))


if __name__ == "__main__":
    sys.exit(main())
