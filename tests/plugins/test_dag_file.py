"""What the DAG processor and the UI see of the DAG files."""

from __future__ import annotations

import copy
import itertools
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

HEAVY = ("torch", "transformers", "docling", "docling_core", "openvino", "pymupdf", "rapidocr", "cv2", "qdrant_client")

PARSE = """
import json, runpy, sys
import airflow.sdk
before = set(sys.modules)
runpy.run_path(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.fixture(scope="module")
def dags() -> Any:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(REPOSITORY / "dags")
    assert bag.import_errors == {}
    assert sorted(bag.dags) == ["audit_knowledge_base", "ingest_manuals", "reembed_knowledge_base"]
    return bag.dags


@pytest.fixture(scope="module")
def dag(dags: Any) -> Any:
    return dags["ingest_manuals"]


@pytest.mark.parametrize("path", sorted((REPOSITORY / "dags").glob("*.py")), ids=lambda path: path.name)
def test_parsing_a_dag_file_loads_nothing_heavy(path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "plugins")}
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(path)], env=env, cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "ocr2kb_operators" in loaded
    assert [name for name in loaded if name in HEAVY] == []


@pytest.mark.parametrize("path", sorted((REPOSITORY / "plugins").glob("*.py")), ids=lambda path: path.name)
def test_a_plugin_module_has_a_name_of_its_own_and_loads_nothing_heavy(path: Path) -> None:
    assert path.stem.startswith("ocr2kb_")
    code = f"import json, sys; import {path.stem}; print(json.dumps(sorted(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "plugins")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert sorted(loaded.intersection(HEAVY)) == []


def test_the_stages_follow_each_other_for_each_document_and_the_report_comes_last(dag: Any) -> None:
    assert dag.task_ids == [
        "list_sources",
        "document.fetch",
        "document.read",
        "document.recover",
        "document.chunk",
        "document.load",
        "report",
    ]
    order = ["fetch", "read", "recover", "chunk", "load"]
    for before, after in itertools.pairwise(order):
        assert f"document.{after}" in dag.get_task(f"document.{before}").downstream_task_ids
    assert dag.get_task("report").downstream_task_ids == set()
    assert dag.get_task("report").trigger_rule == "all_done"
    assert [task.task_id for task in dag.leaves] == ["report"]


def test_runs_cover_whole_hours_one_at_a_time_and_can_be_backfilled(dag: Any) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    assert dag.catchup is False
    assert dag.max_active_runs == 1
    scheduled = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    first, last = datetime(2026, 3, 1, 5, tzinfo=UTC), datetime(2026, 3, 1, 7, tzinfo=UTC)
    intervals = [info.data_interval for info in scheduled.iter_dagrun_infos_between(first, last)]
    assert [(interval.start, interval.end) for interval in intervals] == [
        (first + timedelta(hours=hour), first + timedelta(hours=hour + 1)) for hour in range(3)
    ]


def test_reading_waits_for_the_gpu_and_loading_for_the_knowledge_base(dag: Any) -> None:
    places = {task.task_id: (task.pool, task.queue) for task in dag.tasks}
    assert places["document.read"] == ("gpu", "gpu")
    assert places["document.load"] == ("knowledge_base", "default")
    assert {places[name] for name in ("list_sources", "document.fetch", "report")} == {("default_pool", "default")}


def test_every_task_is_bounded_retried_with_backoff_and_explained(dags: Any) -> None:
    retries = {"ingest_manuals": 5, "audit_knowledge_base": 3, "reembed_knowledge_base": 5}
    for name, dag in dags.items():
        for task in dag.tasks:
            assert task.execution_timeout is not None
            assert task.execution_timeout < dag.dagrun_timeout
            assert (task.retries, task.retry_exponential_backoff) == (retries[name], 2.0)
            assert task.doc_md


def test_the_trigger_form_explains_every_parameter_and_accepts_none_given(dags: Any) -> None:
    for dag in dags.values():
        dag.params.validate()
        for name in dag.params:
            schema = dag.params.get_param(name).schema
            assert schema["title"], name
            assert dag.params.get_param(name).description, name


def test_the_audit_runs_daily_alone_and_takes_the_knowledge_bases_slot(dags: Any) -> None:
    audit = dags["audit_knowledge_base"]
    assert audit.task_ids == ["audit"]
    assert audit.get_task("audit").pool == "knowledge_base"
    assert (audit.catchup, audit.max_active_runs) == (False, 1)
    assert {name: audit.params[name] for name in audit.params} == {"fix": True, "force": False}


@pytest.mark.parametrize(
    "conf",
    [
        {"keys": "a.pdf"},
        {"keys": [""]},
        {"engine": "abbyy"},
        {"ocr": "never"},
        {"force": "yes"},
        {"max_documents": 0},
    ],
    ids=str,
)
def test_a_wrong_parameter_is_refused_before_the_run_starts(dag: Any, conf: dict[str, Any]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    params = copy.deepcopy(dag.params)
    with pytest.raises(ParamValidationError):
        params.update(conf)
