"""How long does the DAG processor need for each DAG file, and what does it load for it?

Each parse is a fresh process, as in the DAG processor: Airflow's SDK is loaded first (its time is shown apart), then
the file with the plugins on the path. Run: `python -m benchmarks.bench_dag_parse [--runs N]`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

REPOSITORY = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "docling_core", "openvino", "pymupdf", "rapidocr", "cv2", "qdrant_client")

PARSE = """
import json, runpy, sys, time
started = time.perf_counter()
import airflow.sdk
from airflow.sdk import DAG, BaseOperator, Param, task_group
sdk = time.perf_counter()
before = set(sys.modules)
runpy.run_path(sys.argv[1])
parsed = time.perf_counter()
print(json.dumps({
    "sdk_s": sdk - started,
    "parse_s": parsed - sdk,
    "new_modules": len(set(sys.modules) - before),
    "loaded": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""


class Parse(TypedDict):
    """One parse: seconds for Airflow's SDK and for the file, modules the file brought, top-level packages loaded."""

    sdk_s: float
    parse_s: float
    new_modules: int
    loaded: list[str]


@dataclass(frozen=True)
class Row:
    """One DAG file: medians over its parses."""

    dag_file: str
    parse_s: float
    sdk_s: float
    new_modules: int
    heavy: list[str]


def parse_once(path: Path, airflow_home: str) -> Parse:
    """Parse one DAG file in a process of its own."""
    env = {
        **os.environ,
        "AIRFLOW_HOME": airflow_home,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "plugins"), str(REPOSITORY)]),
    }
    done = subprocess.run([sys.executable, "-c", PARSE, str(path)], env=env, capture_output=True, text=True, check=True)
    found: Parse = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="parses of each file; the median counts")
    run_count = parser.parse_args().runs
    rows = []
    with TemporaryDirectory(prefix="ocr2kb-bench-") as home:
        for path in sorted((REPOSITORY / "dags").glob("*.py")):
            runs = [parse_once(path, home) for _ in range(run_count)]
            rows.append(
                Row(
                    dag_file=path.name,
                    parse_s=round(statistics.median(run["parse_s"] for run in runs), 4),
                    sdk_s=round(statistics.median(run["sdk_s"] for run in runs), 4),
                    new_modules=runs[0]["new_modules"],
                    heavy=sorted(set(runs[0]["loaded"]).intersection(HEAVY)),
                )
            )
    print(f"{'DAG file':<24} {'parse (s)':>10} {'SDK (s)':>10} {'modules':>8}  heavy libraries")
    for row in rows:
        heavy = ", ".join(row.heavy) or "none"
        print(f"{row.dag_file:<24} {row.parse_s:>10} {row.sdk_s:>10} {row.new_modules:>8}  {heavy}")
    print(json.dumps({"benchmark": "dag_parse", "runs": run_count, "files": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
