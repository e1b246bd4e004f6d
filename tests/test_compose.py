"""docker-compose.yaml against the compose specification's schema and this project's own rules.

Set COMPOSE_SPEC_SCHEMA to a copy of https://github.com/compose-spec/compose-spec/blob/main/schema/compose-spec.json for
the check against the schema.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml

from ingestion.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
COMPOSE_TEXT = (ROOT / "docker-compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<operator>:?[-?+])(?P<word>[^}]*))?\}")
ONE_SHOT = {"airflow-init"}

services = pytest.mark.parametrize("name", sorted(SERVICES))


def example_values() -> tuple[dict[str, str], set[str]]:
    """Values set in .env.example, and the names it offers as comments."""
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    active = dict(re.findall(r"^([A-Z][A-Z0-9_]*)=(.*)$", text, re.MULTILINE))
    return active, set(re.findall(r"^#([A-Z][A-Z0-9_]*)=", text, re.MULTILINE))


def passed_through() -> set[str]:
    """Variables that compose takes from .env without `${}`: environment keys without a value, and secrets."""
    names = {key for service in SERVICES.values() for key, value in environment(service).items() if value is None}
    return names | {secret["environment"] for secret in COMPOSE["secrets"].values()}


def environment(service: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = service.get("environment", {})
    return given


def with_defaults(text: str) -> str:
    """The text with `${NAME:-default}` replaced by its default."""
    return VARIABLE.sub(lambda match: match["word"] if match["operator"] == ":-" else f"<{match['name']}>", text)


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_follows_the_compose_specification() -> None:
    schema_path = os.environ.get("COMPOSE_SPEC_SCHEMA")
    if not schema_path:
        pytest.skip("COMPOSE_SPEC_SCHEMA does not name the compose specification's JSON schema")
    schema = json.loads(Path(schema_path).read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(COMPOSE)]
    assert errors == []
    broken = {**COMPOSE, "services": {"x": {"image": "redis:7", "restrat": "always"}}}
    assert [error.validator for error in validator.iter_errors(broken)] == ["additionalProperties"]


def test_every_variable_is_explained_in_the_example_and_used() -> None:
    active, optional = example_values()
    used = {match["name"] for match in VARIABLE.finditer(COMPOSE_TEXT)} | passed_through()
    assert used - set(active) - optional == set(), "used in docker-compose.yaml, missing in .env.example"
    assert (set(active) | optional) - used == set(), "in .env.example, used nowhere"


def test_each_variable_of_the_example_has_a_comment_above_it() -> None:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    group_has_comment = False
    for line in lines:
        if re.match(r"^#?[A-Z][A-Z0-9_]*=", line):
            assert group_has_comment, f"{line} stands below no explanation"
        else:
            group_has_comment = line.startswith("# ") and not line.startswith("# ---")


def test_secrets_have_no_default_and_stop_compose_when_missing() -> None:
    active, _ = example_values()
    for match in VARIABLE.finditer(COMPOSE_TEXT):
        if re.search(r"PASSWORD|SECRET|KEY|ROOT_USER", match["name"]):
            assert match["operator"] == ":?", match.group(0)
            assert active[match["name"]] in ("", "ocr2kb"), f"{match['name']} has a value in .env.example"
    literals = re.findall(r"^\s+[A-Z_]*(?:PASSWORD|SECRET|API_KEY)[A-Z_]*: *(?!\$\{)(\S+)$", COMPOSE_TEXT, re.MULTILINE)
    # the one that is left is the path of a file, not a password
    assert literals == ["/opt/airflow/auth/passwords.json"]


def test_defaults_are_the_same_in_both_files() -> None:
    active, _ = example_values()
    different = {
        match["name"]: (match["word"], active[match["name"]])
        for match in VARIABLE.finditer(COMPOSE_TEXT)
        if match["operator"] == ":-" and match["word"] != active[match["name"]]
    }
    assert different == {}


@services
def test_the_image_is_pinned(name: str) -> None:
    image = with_defaults(SERVICES[name]["image"])
    tag = image.rpartition(":")[2]
    # at least major.minor, or MinIO's dated releases
    assert re.match(r"^(v?\d+\.\d+(\.\d+)?(-[a-z]+)?|RELEASE\.\d{4}-\d{2}-\d{2}T[0-9-]+Z)$", tag), image


@services
def test_depends_on_waits_for_something_that_can_happen(name: str) -> None:
    for target, rule in SERVICES[name].get("depends_on", {}).items():
        assert target in SERVICES, f"{name} depends on {target}"
        if rule["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[target], f"{name} waits for the health of {target}"
        else:
            assert rule["condition"] == "service_completed_successfully"
            assert SERVICES[target]["restart"] == "no"
        profiles = set(SERVICES[target].get("profiles", []))
        assert profiles <= set(SERVICES[name].get("profiles", [])), f"{target} may not be started with {name}"


@services
def test_ports_are_published_on_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.match(r"^127\.0\.0\.1:\d+:\d+$", with_defaults(port)), port


@services
def test_the_service_restarts_is_watched_and_is_limited(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped")
    assert ("healthcheck" in service) == (name not in ONE_SHOT)
    limits = service["deploy"]["resources"]["limits"]
    assert re.match(r"^\d+[mg]$", with_defaults(limits["memory"]))
    assert float(with_defaults(limits["cpus"])) > 0
    assert service["logging"]["options"]["max-size"] == "10m"
    assert "no-new-privileges:true" in service["security_opt"]


def test_volumes_are_declared_used_and_their_sources_exist() -> None:
    mounts = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])]
    named = {source for source in mounts if not source.startswith(".")}
    assert named == set(COMPOSE["volumes"])
    missing = [source for source in mounts if source.startswith(".") and not (ROOT / source).exists()]
    assert missing == []


def test_settings_of_ocr2kb_exist() -> None:
    active, optional = example_values()
    names = {key for service in SERVICES.values() for key in environment(service)} | set(active) | optional
    unknown = [
        n for n in names if n.startswith("OCR2KB_") and n.removeprefix("OCR2KB_").lower() not in Settings.model_fields
    ]
    assert unknown == []


def test_workers_serve_the_queues_and_init_makes_the_pools_of_the_dags() -> None:
    dags = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "dags").glob("*.py"))
    queues = set(re.findall(r'queue="(\w+)"', dags)) | {"default"}
    served: dict[str, set[str]] = {}
    for name, service in SERVICES.items():
        command = [with_defaults(str(part)) for part in service.get("command", [])]
        if "--queues" in command:
            served[name] = set(command[command.index("--queues") + 1].split(","))
    assert served == {"airflow-worker-cpu": {"default", "gpu"}, "airflow-worker-gpu": {"gpu"}}
    assert queues <= set.union(*served.values())
    assert set(re.findall(r'pool="(\w+)"', dags)) <= set(load_script("airflow_init").POOLS)


def test_celery_gives_no_task_out_twice_while_it_runs() -> None:
    dags = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "dags").glob("*.py"))
    longest_h = max(int(hours) for hours in re.findall(r"execution_timeout[\"']?[=:] ?timedelta\(hours=(\d+)\)", dags))
    settings = environment(SERVICES["airflow-worker-cpu"])
    visibility_s = int(settings["AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT"])
    assert visibility_s > longest_h * 3600


def test_only_the_gpu_worker_reserves_a_device() -> None:
    reserved = {
        name: devices
        for name, service in SERVICES.items()
        if (devices := service["deploy"]["resources"].get("reservations", {}).get("devices"))
    }
    assert reserved == {"airflow-worker-gpu": [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]}
    assert SERVICES["airflow-worker-gpu"]["build"]["args"] == {"TORCH_VARIANT": "cuda"}


def test_alerts_and_dashboard_ask_for_metrics_that_the_mapping_makes() -> None:
    mapping = yaml.safe_load((ROOT / "deploy/statsd/mapping.yaml").read_text(encoding="utf-8"))
    made = {rule["name"] for rule in mapping["mappings"]} | {"airflow_scheduler_heartbeat"}
    yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/ocr2-kb.json").read_text(encoding="utf-8"))
    asked = (ROOT / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8") + json.dumps(dashboard)
    assert set(re.findall(r"\bairflow_\w+", asked)) <= made
    scrape = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text(encoding="utf-8"))
    targets = {t.split(":")[0] for job in scrape["scrape_configs"] for s in job["static_configs"] for t in s["targets"]}
    assert targets - {"127.0.0.1"} <= set(SERVICES)


def test_statsd_rules_fit_the_names_that_airflow_sends() -> None:
    mapping = yaml.safe_load((ROOT / "deploy/statsd/mapping.yaml").read_text(encoding="utf-8"))["mappings"]

    def mapped(metric: str) -> tuple[str, dict[str, str]]:
        for rule in mapping:
            match = re.fullmatch(rule["match"].replace(".", r"\.").replace("*", r"([^.]*)"), metric)
            if match:
                return rule["name"], {k: match.expand(v.replace("$", "\\")) for k, v in rule["labels"].items()}
        raise AssertionError(f"no rule for {metric}")

    # names as Airflow 3.3 sent them in a run of the DAG
    assert mapped("airflow.ti.finish.ingest_manuals.document__read.success") == (
        "airflow_task_finishes",
        {"dag_id": "ingest_manuals", "task_id": "document__read", "state": "success"},
    )
    assert mapped("airflow.ti.running.gpu.ingest_manuals.document__read") == (
        "airflow_tasks_running",
        {"queue": "gpu", "dag_id": "ingest_manuals", "task_id": "document__read"},
    )
    assert mapped("airflow.dag.ingest_manuals.report.duration") == (
        "airflow_task_duration",
        {"dag_id": "ingest_manuals", "task_id": "report"},
    )
    assert mapped("airflow.dagrun.duration.success.ingest_manuals")[1] == {
        "dag_id": "ingest_manuals",
        "state": "success",
    }
    assert mapped("airflow.pool.queued_slots.gpu") == ("airflow_pool_queued_slots", {"pool": "gpu"})


def test_make_env_fills_every_empty_secret_with_a_new_one() -> None:
    make_env = load_script("make_env")
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    first, second = (dict(re.findall(r"^(\w+)=(.*)$", make_env.filled(example), re.MULTILINE)) for _ in range(2))
    empty = {name for name, value in example_values()[0].items() if value == ""}
    assert len(empty) == 9
    for name in empty:
        assert re.fullmatch(r"[A-Za-z0-9_=-]{44,}", first[name])
        assert first[name] != second[name]
    assert len(base64.urlsafe_b64decode(first["AIRFLOW_FERNET_KEY"])) == 32
    assert first["MINIO_ROOT_USER"] == "ocr2kb"


def test_the_image_is_given_only_files_that_exist_and_are_not_ignored() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignore if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), f"COPY {source}"
            assert source in kept, f"{source} is kept from the image by .dockerignore"
    assert ignore[0] == "*"
    assert "\nUSER ocr2kb\n" in dockerfile.rpartition("FROM ")[2]
    assert not (kept & {".env", ".git", "samples"})


def test_the_cluster_extra_is_pinned() -> None:
    pins = (ROOT / "deploy/constraints-cluster.txt").read_text(encoding="utf-8")
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extra,) = re.findall(r"^cluster = \[\n(.*?)^\]", pyproject, re.MULTILINE | re.DOTALL)
    for requirement in re.findall(r'"([a-z-]+)', extra):
        assert re.search(rf"^{requirement}==", pins, re.MULTILINE), requirement
