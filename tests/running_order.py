"""The order in which the suite runs, and the files that never run at the same time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Item = TypeVar("Item")
COMPUTING = {"spark"}
QUICK = {"laws", "model", "process_fake", "unit"}  # these compute, too, but each file takes only seconds
ONE_AT_A_TIME = (
    "kafka/test_kill_points.py",
    "kafka/test_fault_events.py",
    "chaos/test_short_run.py",
    "bench/test_short_form.py",
)
"""Files that start many replicas at once, or measure time. One test process runs them, one after another."""
SLOWEST = (
    *ONE_AT_A_TIME,
    "spark/test_audit.py",
    "kafka/test_detached.py",
    "spark/test_run.py",
    "spark/test_collect_kills.py",
    "spark/test_submit.py",
    "spark/test_evidence.py",
    "spark/test_kills.py",
    "spark/cluster/test_executors.py",
    "spark/test_collect.py",
    "spark/test_compact.py",
    "kafka/test_ordering.py",
    "stores/test_races.py",
    "spark/test_plan.py",
    "spark/test_report.py",
    "spark/test_replayed.py",
    "kafka/test_running_tasks.py",
    "kafka/test_drain.py",
    "contract/test_leave.py",
    "kafka/test_long_tasks.py",
)
"""Files that take more than half a minute, in their order in a run with three test processes on two cores."""


class Scheduler(LoadScopeScheduling):  # type: ignore[misc]  # as above
    """A scheduler that assigns whole files to test processes, and all of ``ONE_AT_A_TIME`` to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(Path(nodeid.partition("::")[0]))


def scope_of(file: Path) -> str:
    """Return the scope that one test process runs without a break: a file, or files that share a scope."""
    name = _short(file)
    return "one at a time" if name in ONE_AT_A_TIME else name


def in_running_order(items: Iterable[Item], path: Callable[[Item], Path]) -> list[Item]:
    """Return the items scope by scope: first those that compute, then those that wait for a broker, each slowest first.

    ``path`` returns the file of an item, relative to the repository. Tests that wait measure time, so they run when the
    CPUs are no longer busy with Spark.
    """
    files: dict[Path, list[Item]] = defaultdict(list)
    for item in items:
        files[path(item)].append(item)
    scopes: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(files, key=_slowest_first):
        scopes[scope_of(file)].append(file)
    in_order = sorted(scopes.values(), key=lambda scope: _turn(scope[0]))
    return [item for scope in in_order for file in scope for item in files[file]]


def _turn(file: Path) -> int:
    """Return when a file runs: 0 if it computes for long, 1 if it computes for seconds, 2 if it waits for a broker."""
    if file.parts[1] in COMPUTING:
        return 0
    return 1 if file.parts[1] in QUICK else 2


def _slowest_first(file: Path) -> int:
    name = _short(file)
    return SLOWEST.index(name) if name in SLOWEST else len(SLOWEST)


def _short(file: Path) -> str:
    """Return the path without ``tests/``."""
    return "/".join(file.parts[1:])
