"""The worker with handlers in a thread and in child processes, and the worker of another commit, in one run."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from benchmarks.broker import PARTITIONS
from benchmarks.comparison import backlog_figures, interleave, rates, ratios_of_worker
from benchmarks.figures import TIMES, Figure, efficiency, quantile, ratios
from benchmarks.kafka_programs import bare_loop, parallel_consumer, the_worker
from benchmarks.names import BARE, EFFICIENCY, MEMORY, PARALLEL, PROCESS, SHARE, WORKER
from benchmarks.processes import PROCESSES, worker
from benchmarks.runs import Work
from benchmarks.traffic import Reader, warm_up
from benchmarks.workloads.latency import rounds_of
from benchmarks.workloads.peers import SLOWER

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench
    from benchmarks.comparison import Program

ISOLATED = {"WORKER_ISOLATION": "process"}
RATIO, MORE = f"{PROCESS} ÷ {WORKER}", f"{PROCESS} minus {WORKER}"
HEAVY = {"WORKER_HANDLER": "benchmarks.learning:fit"}  # instead of an empty task
SETTLE_SECONDS = 1.0
SIZES = {"1 ms": 0.001, "10 ms": 0.01, "100 ms": 0.1}
EMPTY, TASKS, IDLE = "engines-empty", "engines-tasks", "engines-idle"


def _engines(bench: Bench, total: int) -> list[Program]:
    """Return threads, processes, and the other commit if there is one."""
    found: list[Program] = [the_worker(total), the_worker(total, PROCESS, **ISOLATED)]
    if bench.other_engine:
        found.append(the_worker(total, bench.other_engine.name, **bench.other_engine.settings))
    return found


def empty(bench: Bench) -> list[Figure]:
    """Measure empty tasks, with the bare loop and parallel-consumer.

    The first run of each does not count: see ``throughput``.
    """
    total, load = bench.scale.empty_tasks, bench.load
    programs = [*_engines(bench, total), bare_loop(total)]
    if bench.scale.fetch:
        programs.append(parallel_consumer(bench.environments, total // SLOWER))
    runs = interleave(bench, EMPTY, programs, 1 + bench.scale.repetitions, lambda one: one.drain_backlog(bench, load))
    runs = {name: backlogs[1:] for name, backlogs in runs.items() if len(backlogs) > 1}
    values = {name: rates(backlogs) for name, backlogs in runs.items()}
    goals = {BARE: "bare", PARALLEL: PARALLEL}
    return [
        *_of_thread(EMPTY, "empty tasks", values, "process: empty"),
        *_of_others(EMPTY, "empty tasks", values, goals),
        *backlog_figures(EMPTY, "empty tasks", runs),
    ]


def tasks(bench: Bench) -> list[Figure]:
    """Measure tasks of one length, for several lengths."""
    return [figure for size, seconds in SIZES.items() for figure in _tasks(bench, size, seconds)]


def _tasks(bench: Bench, size: str, seconds: float) -> list[Figure]:
    quantity = f"{size} tasks"
    count = max(1, round(bench.scale.spin_seconds * PROCESSES / PARTITIONS / seconds)) * PARTITIONS
    work = Work([seconds] * count, short=True)
    found = interleave(
        bench,
        f"{TASKS}, {size}",
        _engines(bench, count),
        bench.scale.repetitions,
        lambda one: one.run_tasks(bench, work),
    )
    shares = {name: [count * seconds / PROCESSES / one.makespan for one in runs] for name, runs in found.items()}
    times = {name: tuple(efficiency(one.spans).together for one in runs) for name, runs in found.items()}
    of_share = {WORKER: f"{size} share"}
    of_time = {WORKER: size, PROCESS: f"process: {size}"}
    return [
        *_of_thread(TASKS, quantity, shares),
        *_of_others(TASKS, quantity, shares, {}),
        *(Figure(TASKS, quantity, one, SHARE, tuple(each), of_share.get(one, "")) for one, each in shares.items()),
        *(Figure(TASKS, quantity, one, EFFICIENCY, each, of_time.get(one, "")) for one, each in times.items()),
    ]


def _of_thread(workload: str, quantity: str, values: dict[str, list[float]], goal: str = "") -> list[Figure]:
    """Return processes ÷ threads."""
    if not {PROCESS, WORKER} <= values.keys():
        return []
    return [Figure(workload, quantity, RATIO, TIMES, ratios(values[PROCESS], values[WORKER]), goal)]


def _of_others(workload: str, quantity: str, values: dict[str, list[float]], goals: dict[str, str]) -> list[Figure]:
    """Return worker ÷ other program, for all others except the worker with processes."""
    others = {name: found for name, found in values.items() if name != PROCESS}
    return ratios_of_worker(workload, quantity, others, goals)


def idle(bench: Bench) -> list[Figure]:
    """Measure round trips of one task at a time, and the memory, while all programs run."""
    settings: dict[str, dict[str, str]] = {WORKER: {}, PROCESS: ISOLATED}
    if bench.other_engine:
        settings[bench.other_engine.name] = bench.other_engine.settings
    endpoints = {name: bench.endpoint() for name in settings}
    groups = {name: worker(endpoints[name], "nothing", **settings[name]) for name in settings}
    memory: dict[str, list[float]] = {name: [] for name in settings}

    def look() -> None:
        for name, group in groups.items():
            memory[name].append(sum(group.pss()) / 1e6)

    rounds = rounds_of(bench, IDLE, endpoints, list(groups.values()), look)
    medians = {name: [quantile(times, 0.5) for times in repetitions] for name, repetitions in rounds.items()}
    trip = "idle round trip beside the other engine, p50"
    longer = tuple(one - other for one, other in zip(medians[PROCESS], medians[WORKER], strict=True))
    return [
        Figure(IDLE, trip, MORE, "ms", longer, "process: latency"),
        *(Figure(IDLE, trip, name, "ms", tuple(values)) for name, values in medians.items()),
        *_memory_figures("idle memory", memory, "process: memory"),
        *_memory_figures("idle memory, scikit-learn imported", _heavy_memory(bench), "process: memory, scikit-learn"),
    ]


def _heavy_memory(bench: Bench) -> dict[str, list[float]]:
    """Return the MB of all processes once each has run a task with large imports. Each program starts several times."""
    found: dict[str, list[float]] = {WORKER: [], PROCESS: []}
    for _ in range(bench.scale.repetitions):
        for name, settings in ((WORKER, HEAVY), (PROCESS, HEAVY | ISOLATED)):
            endpoint = bench.endpoint()
            group = worker(endpoint, "nothing", **settings)
            with contextlib.closing(Reader(endpoint, group)) as reader, group:
                warm_up(endpoint, reader)
                time.sleep(SETTLE_SECONDS)
                found[name].append(sum(group.pss()) / 1e6)
    return found


def _memory_figures(quantity: str, memory: dict[str, list[float]], goal: str) -> list[Figure]:
    more = tuple((one - other) / PROCESSES for one, other in zip(memory[PROCESS], memory[WORKER], strict=True))
    return [
        Figure(IDLE, quantity, MORE, "MB PSS per worker process", more, goal),
        *(Figure(IDLE, quantity, name, MEMORY, tuple(values)) for name, values in memory.items()),
    ]


WORKLOADS: dict[str, Callable[[Bench], list[Figure]]] = {
    EMPTY: empty,
    TASKS: tasks,
    IDLE: idle,
}
