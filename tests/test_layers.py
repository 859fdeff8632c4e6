"""Imports point one way, `flows -> tasks -> stages -> data_contracts`, and planning needs no torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ["flows", "tasks", "stages", "data_contracts"]
ALLOWED = {layer: set(LAYERS[index:]) for index, layer in enumerate(LAYERS)}
FORBIDDEN = {
    "flows": {"mlflow", "great_expectations"},
    "tasks": set(),
    "stages": {"prefect", "mlflow", "great_expectations"},
    "data_contracts": {
        "prefect",
        "mlflow",
        "great_expectations",
        "torch",
        "transformers",
        "pandas",
        "pydantic",
    },
}
HEAVY = ("torch", "transformers", "mlflow", "great_expectations", "pandas", "matplotlib", "sqlglot")


def imported(file: Path) -> set[str]:
    """Top-level packages that a source file imports anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import():
                names |= {alias.name.split(".")[0] for alias in node.names}
            case ast.ImportFrom(level=0, module=str(module)):
                names.add(module.split(".")[0])
    return names


def imported_modules(file: Path, known: set[str]) -> set[str]:
    """Which of the known modules a source file imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom(level=0, module=str(module)):
                inner = [f"{module}.{alias.name}" for alias in node.names]
                found |= {name if name in known else module for name in inner}
    return found & known


def modules(*folders: str) -> list[str]:
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    assert files
    dotted = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in dotted if not name.endswith("__main__")]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_is_below_it(layer):
    wrong = {
        str(file.relative_to(ROOT)): sorted(bad)
        for file in (ROOT / layer).rglob("*.py")
        if (bad := (imported(file) & set(LAYERS)) - ALLOWED[layer] | imported(file) & FORBIDDEN[layer])
    }
    assert wrong == {}


@pytest.mark.parametrize("folder", ["engines", "estimators"])
def test_engines_and_estimators_know_no_domain(folder):
    files = list((ROOT / "stages" / folder).rglob("*.py"))
    assert files and not [file for file in files if "stages.domains" in file.read_text()]


def test_tasks_import_each_other_in_no_circle():
    """Imports inside of functions count."""
    names = set(modules("tasks"))
    edges = {}
    for name in names:
        file = ROOT / Path(*name.split("."))
        source = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        edges[name] = imported_modules(source, names)
    while leaves := [name for name, needs in edges.items() if not needs & edges.keys()]:
        for name in leaves:
            del edges[name]
    assert edges == {}


def test_flows_tasks_and_parameters_import_without_heavy_packages():
    """In a fresh interpreter that refuses them, every module of both and every params.py imports."""
    params = [name for name in modules("stages") if name.rsplit(".", 1)[-1] == "params"]
    assert "stages.rl.params" in params
    program = f"""
import importlib, importlib.abc, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise ImportError(name + " is heavy")
sys.meta_path.insert(0, Refuse())
failed = []
for name in {modules("flows", "tasks") + params!r}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{{name}}: {{error}}")
print("\\n".join(failed))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == ""


def test_the_store_and_its_sessions_import_without_prefect():
    program = "import sys, tasks.planning, tasks.stage; print('prefect' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
