"""Packages import each other in one direction only, and some libraries are imported in one place only."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "worker"
FILES = sorted(file for file in WORKER.rglob("*.py") if "pb" not in file.relative_to(WORKER).parts)

# From the outside in: a package imports only the packages in its own line.
LAYERS = {
    "testing": {"process", "executors", "state", "kafka", "handlers", "core"},
    "cli": {"supervisor", "isolation", "client", "state", "kafka", "handlers", "stores", "core", "settings"},
    "client": {"settings", "kafka", "core"},
    "settings": {"kafka", "core"},
    "supervisor": {"settings", "process", "state", "kafka", "core"},
    "process": {"isolation", "executors", "state", "kafka", "handlers", "stores", "core"},
    "isolation": {"executors", "handlers", "core"},
    "executors": {"handlers", "core"},
    "kafka": {"core"},
    "handlers": {"stores", "core"},
    "stores": {"core"},
    "state": {"kafka", "core"},
    "core": set(),
}
# The modules of the standard library that only handle values.
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
    """Return the package of a module, or its name if it is in no package: ``kafka`` or ``codec``."""
    return module.split(".")[1] if "." in module else ""


@functools.cache
def imports(file: Path) -> tuple[str, ...]:
    """Return every module that the file imports, also inside functions and for annotations only."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(file)} imports relatively"
            # ``from worker import logs`` imports worker.logs.
            found += [f"worker.{a.name}" for a in node.names] if node.module == "worker" else [node.module or ""]
    return tuple(found)


def test_every_package_has_its_layer() -> None:
    packages = {file.relative_to(WORKER).parts[0] for file in FILES if file.parent != WORKER}
    assert packages == LAYERS.keys()


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_the_layers_that_its_line_allows(layer: str) -> None:
    """The order: ``cli → supervisor → process → {executors → handlers → stores, kafka} → core``. Annotations count."""
    wrong = [
        f"{name(file)} imports {module}"
        for file in FILES
        if file.is_relative_to(WORKER / layer)
        for module in imports(file)
        if module.startswith("worker.") and package(module) in LAYERS.keys() - {layer} - LAYERS[layer]
    ]
    assert wrong == []


def test_the_core_imports_only_modules_that_handle_values() -> None:
    """The core uses no clock, thread, file, socket or log. ``now`` is an argument. Errors are values too."""
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
        ("kafka", ("worker/kafka/",)),
        ("pathos", ("worker/supervisor/child.py",)),
        ("multiprocess", ("worker/supervisor/child.py",)),
        ("multiprocessing", ("worker/supervisor/child.py",)),
        ("worker.pb", ("worker/codec.py", "worker/state/records.py")),
    ],
)
def test_a_library_is_imported_only_in_its_place(library: str, places: tuple[str, ...]) -> None:
    """So a library can be replaced there, and a test can do without it."""
    wrong = [
        f"{name(file)} imports {module}"
        for file in FILES
        for module in imports(file)
        if (module + ".").startswith(library + ".") and not name(file).startswith(places)
    ]
    assert wrong == []


def test_the_worker_imports_no_tests_pipeline_benchmarks_or_examples() -> None:
    wrong = [
        f"{name(file)} imports {module}"
        for file in FILES
        for module in imports(file)
        if module.split(".")[0] in {"tests", "pipeline", "benchmarks", "examples"}
    ]
    assert wrong == []


# -- circles

PACKAGES = ("benchmarks", "chaos", "examples", "pipeline", "worker")


def module_name(file: Path) -> str:
    """Return the dotted name of a file of this repository."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def at_module_level(nodes: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports outside of functions, including those under ``TYPE_CHECKING``."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from at_module_level(ast.iter_child_nodes(node))


def imported(node: ast.Import | ast.ImportFrom, known: Collection[str]) -> set[str]:
    """Return the known modules that a statement imports. ``from chaos import plan`` imports chaos.plan."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & set(known)
    package = node.module or ""
    submodules = {f"{package}.{alias.name}" for alias in node.names} & set(known)
    return submodules | ({package} & set(known) if len(submodules) < len(node.names) else set())


def arrows(root: Path, packages: Iterable[str]) -> dict[str, set[str]]:
    """Return the modules that each module of these packages imports."""
    files = {module_name(file): file for package in packages for file in (root / package).rglob("*.py")}
    return {
        name: {one for node in at_module_level([ast.parse(file.read_text())]) for one in imported(node, files)} - {name}
        for name, file in files.items()
    }


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or indirectly."""

    def reached(begin: str) -> set[str]:
        seen: set[str] = set()
        waiting = [begin]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    behind = {name: reached(name) for name in graph}
    groups = {frozenset(other for other in behind[name] if name in behind[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}) == [["a", "b", "c"]]


@functools.cache
def all_arrows() -> dict[str, set[str]]:
    return arrows(ROOT, PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    """So a module can be read, tested and moved without the modules that use it. Annotations count."""
    found = [circle for circle in circles(all_arrows()) if any(one.split(".")[0] == package for one in circle)]
    assert found == []


def test_benchmarks_chaos_and_examples_do_not_import_the_tests() -> None:
    wrong = [
        f"{name(file)} imports {module}"
        for package in ("benchmarks", "chaos", "examples")
        for file in sorted((ROOT / package).rglob("*.py"))
        for module in imports(file)
        if module.split(".")[0] == "tests"
    ]
    assert wrong == []
