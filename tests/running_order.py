"""The order in which the suite runs, and the files that never run at the same time."""

from __future__ import annotations

import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Item = TypeVar("Item")
SPARK_SCOPES = 3
"""How many test processes run Spark at the same time. Each starts one JVM for all its tests."""
QUICK = {"laws", "model", "process_fake", "unit"}  # these compute; most of their files take only seconds
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
    "spark/test_run.py",
    "spark/test_evidence.py",
    "spark/test_damage.py",
    "spark/test_collect_kills.py",
    "spark/test_submit.py",
    "spark/test_collect.py",
    "spark/test_kills.py",
    "spark/test_chain.py",
    "spark/test_compact.py",
    "spark/test_transforms.py",
    "spark/test_repeated_batches.py",
    "spark/test_plan.py",
    "spark/test_replayed.py",
    "spark/test_shared_bronze.py",
    "kafka/test_detached.py",
    "contract/test_transactor.py",
    "kafka/test_follow_ups.py",
    "kafka/test_recreated_topics.py",
    "kafka/test_late_commit.py",
    "kafka/test_ordering.py",
    "process/test_supervisor.py",
    "kafka/test_lost_heartbeat.py",
    "contract/test_leave.py",
    "kafka/test_tutorial.py",
    "kafka/test_checkpoints.py",
    "kafka/test_drain.py",
    "kafka/test_stranded.py",
    "kafka/test_answers.py",
    "kafka/test_extra_slots.py",
    "kafka/test_scaling.py",
    "kafka/test_detached_order.py",
    "kafka/test_membership.py",
    "kafka/test_client_usage.py",
    "kafka/test_running_tasks.py",
    "kafka/test_long_tasks.py",
    "stores/test_races.py",
    "process_fake/test_simulation.py",
    "process_fake/test_cancel.py",
    "model/test_detached_model.py",
    "process_fake/test_detached.py",
)
"""Files that take more than half a minute, the slowest first. Consecutive files of Spark go to different scopes, so the
scopes are about equally long."""
_SPARK = tuple(name for name in SLOWEST if name.startswith("spark/"))


class Scheduler(LoadScopeScheduling):  # type: ignore[misc]  # as above
    """A scheduler that assigns whole files to test processes, and all of ``ONE_AT_A_TIME`` to the same one."""

    def remove_node(self, node: Any) -> str | None:
        """Give the tests of a test process that has ended to others, and return the test that ended it, if any.

        In contrast to the scheduler of xdist, this one does not run that test again: it could end the next process, and
        if it passed, it would no longer count as failed.
        """
        scopes = self.assigned_work.pop(node)
        pending = [(scope, test) for scope, tests in scopes.items() for test, done in tests.items() if not done]
        if not pending:
            return None
        scope, ended = pending[0]
        scopes[scope][ended] = True
        self.workqueue.update({scope: scopes[scope] for scope, _ in pending})
        for other in self.assigned_work:
            self._reschedule(other)
        return cast("str", ended)

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(Path(nodeid.partition("::")[0]))


def scope_of(file: Path) -> str:
    """Return the scope that one test process runs without a break: a file, or files that share a scope."""
    name = _short(file)
    if file.parts[1] == "spark":
        number = _SPARK.index(name) if name in _SPARK else zlib.crc32(name.encode())
        return f"Spark {number % SPARK_SCOPES}"
    return "one at a time" if name in ONE_AT_A_TIME else name


def in_running_order(items: Iterable[Item], path: Callable[[Item], Path]) -> list[Item]:
    """Return the items scope by scope: Spark, then what waits for a broker, then what computes, each slowest first.

    ``path`` returns the file of an item, relative to the repository. The first two run at the same time: a test process
    that waits leaves its CPU to Spark, whose JVMs have a lower priority. What computes comes last, because its files
    are short and fill the time until the last test process has ended.
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
    """Return when a file runs: 0 if it needs Spark, 1 if it waits for a broker, 2 if it only computes."""
    if file.parts[1] == "spark":
        return 0
    return 2 if file.parts[1] in QUICK else 1


def _slowest_first(file: Path) -> int:
    name = _short(file)
    return SLOWEST.index(name) if name in SLOWEST else len(SLOWEST)


def _short(file: Path) -> str:
    """Return the path without ``tests/``."""
    return "/".join(file.parts[1:])
