"""Imports run one way, every module can be imported, and none loads a heavy library just by being imported."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Each may import itself and what stands to its right, never what stands to its left.
LAYERS = ("dags", "plugins", "ingestion", "knowledge_base", "structure_recovery", "ocr2_core")
# Airflow puts these folders themselves on sys.path: their modules are top-level names.
FOLDERS_ON_PATH = ("dags", "plugins")
OUTSIDE = ("benchmarks", "samples", "tests")

HEAVY_LIBRARIES = ("torch", "transformers", "sentence_transformers", "openvino", "rapidocr", "rapid_layout", "docling")
# Modules whose whole purpose is a model in one of these libraries; whoever uses them imports them inside a function.
HEAVY_MODULES = frozenset(
    f"ocr2_core.{name}"
    for name in (
        "ocr2.block_pool",
        "ocr2.decode_step",
        "ocr2.gates",
        "ocr2.group_cache",
        "ocr2.image_preparation",
        "ocr2.local_cache",
        "ocr2.model",
        "ocr2.model_decoder",
        "ocr2.page_encoder",
        "ocr2.page_gate",
        "ocr2.prefill",
        "ocr2.selection",
        "ocr2.sequence_state",
        "ocr2.sr_swa_attention",
        "ocr2.token_selector",
        "ocr2.triton_decode",
        "ocr2.triton_kernels",
        "nano.architecture",
        "nano.characters",
        "nano.checkpoint",
        "nano.gate_training",
        "nano.observed_model",
        "nano.optimiser",
        "nano.reading_loss",
        "nano.sequences",
        "nano.train",
        "nano.window_attention",
    )
)

IMPORT_PROBE = """
import importlib, json, sys
heavy, modules = json.loads(sys.stdin.read())
broken, loaders = {}, {}
for name in modules:
    before = {library for library in heavy if library in sys.modules}
    try:
        importlib.import_module(name)
    except BaseException as error:
        broken[name] = f"{type(error).__name__}: {error}"
    for library in heavy:
        if library in sys.modules and library not in before:
            loaders.setdefault(library, name)
print("PROBE " + json.dumps([broken, loaders]))
"""


def module_name(path: Path) -> str:
    """Dotted name under which the file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in FOLDERS_ON_PATH:
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_files(layer: str) -> list[Path]:
    return sorted(path for path in (ROOT / layer).rglob("*.py") if "__pycache__" not in path.parts)


def owners() -> dict[str, str]:
    """Top-level module name → layer it belongs to."""
    names = {layer: layer for layer in (*LAYERS, *OUTSIDE)}
    for folder in FOLDERS_ON_PATH:
        names.update({module_name(path).split(".")[0]: folder for path in source_files(folder)})
    return names


def imported_names(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of each import in a module, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            yield node.lineno, base
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("importlib.import_module", "import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def wrong_imports(path: Path, layer: str, layer_of: dict[str, str], source: str | None = None) -> list[str]:
    """A line of text for each import of `path`, in `layer`, that runs against the direction."""
    text = path.read_text(encoding="utf-8") if source is None else source
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    allowed = LAYERS[LAYERS.index(layer) :]
    found = []
    for line, name in imported_names(ast.parse(text, filename=str(path)), package):
        target = layer_of.get(name.split(".")[0])
        if target is not None and target not in allowed:
            where = f"{path.relative_to(ROOT)}:{line}"
            found.append(f"{where} imports {name}: {layer} may import only {', '.join(allowed)}")
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_run_one_way(layer: str) -> None:
    layer_of = owners()
    files = source_files(layer)
    assert files, f"{layer}/ holds no module"
    wrong = [message for path in files for message in wrong_imports(path, layer, layer_of)]
    assert not wrong, "\n".join(["imports against the direction:", *wrong])


def module_path(name: str) -> Path | None:
    """The file of one of our modules, by its dotted name."""
    relative = Path(*name.split("."))
    folders = [ROOT, *(ROOT / folder for folder in FOLDERS_ON_PATH)]
    candidates = [
        folder / tail for folder in folders for tail in (relative.with_suffix(".py"), relative / "__init__.py")
    ]
    return next((path for path in candidates if path.is_file()), None)


def defined_names(path: Path) -> set[str]:
    """Names a module binds at its top level, also under `if` and `try`; submodules count for a package."""
    names: set[str] = set()
    if path.name == "__init__.py":
        names |= {child.stem for child in path.parent.iterdir()}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
    return names


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_inside_functions_lead_to_something(layer: str) -> None:
    """A late import of a renamed module or function breaks only when it runs; find it now."""
    layer_of = owners()
    wrong = []
    for path in source_files(layer):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.level or (node.module or "").split(".")[0] not in layer_of:
                continue
            target = module_path(node.module or "")
            missing = [a.name for a in node.names if target is None or a.name not in defined_names(target)]
            if missing:
                what = "no such module" if target is None else f"it has no {', '.join(missing)}"
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} imports from {node.module}: {what}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("layer", "source", "line"),
    [
        ("ocr2_core", "import json\nimport ingestion.settings\n", 2),
        ("structure_recovery", "def f():\n    from knowledge_base import search\n", 2),
        ("ingestion", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ocr2kb_operators\n", 3),
        ("knowledge_base", "import importlib\nimportlib.import_module('benchmarks.corpus')\n", 2),
    ],
)
def test_the_check_finds_a_wrong_import(layer: str, source: str, line: int) -> None:
    path = ROOT / layer / "example.py"
    layer_of = {**owners(), "ocr2kb_operators": "plugins"}
    (message,) = wrong_imports(path, layer, layer_of, source)
    assert message.startswith(f"{layer}/example.py:{line} imports ")


def test_the_check_lets_right_imports_pass() -> None:
    source = "import ocr2_core.blocks\nfrom structure_recovery import recover\nfrom . import stages\nimport numpy\n"
    assert wrong_imports(ROOT / "ingestion" / "example.py", "ingestion", owners(), source) == []


def test_no_module_name_is_used_twice_on_the_path() -> None:
    names = [module_name(path).split(".")[0] for folder in FOLDERS_ON_PATH for path in source_files(folder)]
    taken = {*LAYERS, *OUTSIDE, *sys.stdlib_module_names}
    clashes = sorted({name for name in names if names.count(name) > 1 or name in taken})
    assert not clashes, f"modules of dags/ and plugins/ need names of their own: {clashes}"


def probe(layers: tuple[str, ...], tmp_path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Import all modules in one fresh process: what broke, and which module first loaded which heavy library."""
    modules = [module_name(path) for layer in layers for path in source_files(layer) if path.name != "__main__.py"]
    modules = [name for name in modules if name and name not in HEAVY_MODULES]
    search_path = os.pathsep.join(str(ROOT / folder) for folder in ("", *FOLDERS_ON_PATH))
    environment = {
        **os.environ,
        "PYTHONPATH": search_path,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
    }
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_PROBE],
        input=json.dumps([HEAVY_LIBRARIES, modules]),
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=240,
        check=False,
    )
    results = [line.removeprefix("PROBE ") for line in done.stdout.splitlines() if line.startswith("PROBE ")]
    assert results, f"the probe itself failed: {done.stderr[-2000:]}"
    broken, loaders = json.loads(results[-1])
    return broken, loaders


def report(broken: dict[str, str], loaders: dict[str, str]) -> str:
    lines = [f"{name} cannot be imported: {error}" for name, error in broken.items()]
    lines += [f"importing {module} loads {library}: import it inside a function" for library, module in loaders.items()]
    return "\n".join(lines)


def test_every_library_module_imports_and_loads_nothing_heavy(tmp_path: Path) -> None:
    broken, loaders = probe(("ocr2_core", "structure_recovery", "knowledge_base", "ingestion"), tmp_path)
    message = report(broken, loaders)
    assert message == "", message


def test_every_dag_and_plugin_module_imports_and_loads_nothing_heavy(tmp_path: Path) -> None:
    if find_spec("airflow") is None:
        pytest.skip("Airflow is not installed (extra `airflow`)")
    broken, loaders = probe(("plugins", "dags"), tmp_path)
    message = report(broken, loaders)
    assert message == "", message


def test_the_probe_finds_a_heavy_import(tmp_path: Path) -> None:
    (tmp_path / "heavy_example.py").write_text("import torch\n", encoding="utf-8")
    (tmp_path / "torch.py").write_text("", encoding="utf-8")
    (tmp_path / "broken_example.py").write_text("import no_such_library\n", encoding="utf-8")
    modules = ["heavy_example", "broken_example"]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_PROBE],
        input=json.dumps([HEAVY_LIBRARIES, modules]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    broken, loaders = json.loads(done.stdout.strip().removeprefix("PROBE "))
    assert broken == {"broken_example": "ModuleNotFoundError: No module named 'no_such_library'"}
    assert loaders == {"torch": "heavy_example"}
