"""Imports point one way, and what is special is known in one place only."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "worker"
FILES = sorted(file for file in WORKER.rglob("*.py") if "pb" not in file.relative_to(WORKER).parts)

# From the outside in: a package imports only what stands behind it in its own line.
LAYERS = {
    "cli": {"supervisor", "process", "kafka", "handlers", "core", "settings"},
    "settings": {"kafka", "core"},
    "supervisor": {"settings", "process", "kafka", "core"},
    "process": {"kafka", "handlers", "stores", "core"},
    "kafka": {"core"},
    "handlers": {"stores", "core"},
    "stores": {"core"},
    "core": set(),
}
# Of the standard library, what only knows values.
PURE = {
    *(
        "__future__",
        "bisect",
        "collections",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "heapq",
        "itertools",
        "math",
    ),
    *("operator", "random", "re", "string", "struct", "types", "typing", "signal"),
}


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def package(module: str) -> str:
    """``worker.kafka.ports`` is of ``kafka``, ``worker.codec`` of no package: its own name stands for it."""
    return module.split(".")[1] if "." in module else ""


@functools.cache
def imports(file: Path) -> tuple[str, ...]:
    """Every module that the file imports, also inside functions and for annotations only."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(file)} imports relatively"
            # ``from worker import logs`` imports worker.logs.
            found += [f"worker.{a.name}" for a in node.names] if node.module == "worker" else [node.module or ""]
    return tuple(found)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_is_behind_it(layer: str) -> None:
    """``cli → supervisor → process → {kafka, handlers} → core``, annotations included."""
    wrong = [
        f"{name(file)} imports {module}"
        for file in FILES
        if file.is_relative_to(WORKER / layer)
        for module in imports(file)
        if module.startswith("worker.") and package(module) in LAYERS.keys() - {layer} - LAYERS[layer]
    ]
    assert wrong == []


def test_the_core_knows_values_only() -> None:
    """No clock, thread, file, socket or log: ``now`` is passed in. Errors are values too."""
    wrong = [
        f"{name(file)} imports {module}"
        for file in FILES
        if file.is_relative_to(WORKER / "core")
        for module in imports(file)
        if not (module.split(".")[0] in PURE or module.startswith("worker.core.") or module == "worker.errors")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("library", "places"),
    [
        ("confluent_kafka", ("worker/kafka/",)),
        ("pathos", ("worker/supervisor/child.py",)),
        ("multiprocess", ("worker/supervisor/child.py",)),
        ("multiprocessing", ("worker/supervisor/child.py",)),
        ("worker.pb", ("worker/codec.py",)),
    ],
)
def test_a_library_is_known_in_one_place(library: str, places: tuple[str, ...]) -> None:
    """So that it can be replaced there, and a test can go without it."""
    wrong = [
        f"{name(file)} imports {module}"
        for file in FILES
        for module in imports(file)
        if (module + ".").startswith(library + ".") and not name(file).startswith(places)
    ]
    assert wrong == []


def test_nobody_reaches_into_the_command_line_or_the_tests() -> None:
    wrong = [
        f"{name(file)} imports {module}"
        for file in FILES
        for module in imports(file)
        if module.split(".")[0] in {"tests", "pipeline", "benchmarks", "examples"}
    ]
    assert wrong == []
