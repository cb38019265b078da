"""CPU-bound tasks of one length: the share of the machine's time that they get."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from benchmarks.broker import PARTITIONS
from benchmarks.comparison import interleave, ratios_of_worker
from benchmarks.figures import Figure, efficiency
from benchmarks.kafka_programs import the_worker
from benchmarks.names import EFFICIENCY, SHARE, WORKER
from benchmarks.processes import PROCESSES
from benchmarks.runs import TaskRun, Work
from benchmarks.workloads.peers import all_programs

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

SIZES = {"1 ms": 0.001, "10 ms": 0.01, "100 ms": 0.1, "1 s": 1.0}
SHORT = 0.05  # seconds: below it, programs use their settings for short tasks
WITH_EXACTLY_ONCE = "10 ms"  # the size that also runs with exactly-once
EXACTLY_ONCE = "worker, exactly-once"


def workloads() -> dict[str, Callable[[Bench], list[Figure]]]:
    """Return a workload for each size."""
    return {_name(size): functools.partial(run, size) for size in SIZES}


def _name(size: str) -> str:
    return f"tasks-{size.replace(' ', '')}"


def run(size: str, bench: Bench) -> list[Figure]:
    """Measure all programs in turn, and at one size exactly-once, too."""
    name, seconds = _name(size), SIZES[size]
    # The same number for every partition, so that all processes end together.
    count = max(1, round(bench.scale.spin_seconds * PROCESSES / PARTITIONS / seconds)) * PARTITIONS
    programs = all_programs(bench)
    if size == WITH_EXACTLY_ONCE:
        programs.insert(1, the_worker(count, EXACTLY_ONCE, WORKER_GUARANTEE="exactly-once"))
    work = Work([seconds] * count, short=seconds < SHORT)
    runs = interleave(bench, name, programs, bench.scale.repetitions, lambda one: one.run_tasks(bench, work))
    shares = {one: [count * seconds / PROCESSES / run.makespan for run in runs[one]] for one in runs}
    quantity, goals = f"{size} tasks", {WORKER: f"{size} share"}
    return [
        *ratios_of_worker(name, quantity, shares, {}),
        *(Figure(name, quantity, one, SHARE, tuple(values), goals.get(one, "")) for one, values in shares.items()),
        *(
            Figure(
                name,
                quantity,
                one,
                "server's CPU ms/task",
                tuple(1000 * run.server_cpu / count for run in runs[one]),
            )
            for one in runs
        ),
        *_goals(name, quantity, WORKER, runs, size),
        *_goals(name, quantity, EXACTLY_ONCE, runs, f"exactly-once {size}"),
    ]


def _goals(name: str, quantity: str, program: str, runs: dict[str, list[TaskRun]], goal: str) -> list[Figure]:
    """Return the figures of the worker's goals: the share of time in tasks, and the share of CPU in tasks."""
    if program not in runs:
        return []
    both = [efficiency(run.spans) for run in runs[program]]
    cpu = [sum(span.cpu for span in run.spans) / run.cpu for run in runs[program]]
    return [
        Figure(name, quantity, program, EFFICIENCY, tuple(one.together for one in both), goal),
        Figure(name, quantity, program, "the same, each process in its own time", tuple(one.each for one in both)),
        Figure(name, quantity, program, "CPU in tasks ÷ CPU of all processes", tuple(cpu)),
    ]
