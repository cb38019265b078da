"""Small to large payloads with empty tasks, and large ones with long tasks: the bytes on the wire."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from benchmarks.comparison import backlog_figures, interleave, rates, ratios_of_worker
from benchmarks.figures import Figure
from benchmarks.kafka_programs import bare_loop
from benchmarks.names import RECEIVED
from benchmarks.runs import Load, Work
from benchmarks.workloads.peers import all_programs, kafka_programs

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

SIZES = {"100 B": (100, 1), "10 KB": (10_000, 2), "500 KB": (500_000, 50)}  # bytes; divisor of the number of requests
LONG, LONG_TASKS, LONG_BYTES = 1.5, 16, 500_000  # seconds long enough to pause a full queue; number; bytes
REFETCH = "refetch"


def workloads() -> dict[str, Callable[[Bench], list[Figure]]]:
    """Return a workload for each size, and one with long tasks."""
    sizes = {_name(size): functools.partial(run, size) for size in SIZES}
    return {**sizes, REFETCH: refetch}


def _name(size: str) -> str:
    return f"payload-{size.replace(' ', '')}"


def run(size: str, bench: Bench) -> list[Figure]:
    """Measure all programs and the bare loop on the whole backlog, so that the bytes are comparable."""
    length, fewer = SIZES[size]
    load, quantity = Load("x" * length, max(200, bench.scale.payloads // fewer)), f"empty tasks, {size}"
    programs = [*all_programs(bench), bare_loop(load.waiting)]
    runs = interleave(bench, _name(size), programs, bench.scale.repetitions, lambda one: one.drain_backlog(bench, load))
    values = {name: rates(flows) for name, flows in runs.items()}
    return [*ratios_of_worker(_name(size), quantity, values, {}), *backlog_figures(_name(size), quantity, runs)]


def refetch(bench: Bench) -> list[Figure]:
    """Measure long tasks with large payloads: a paused client drops fetched records, and fetches them again."""
    work = Work([LONG] * LONG_TASKS, short=False, bulk=LONG_BYTES)
    runs = interleave(
        bench, REFETCH, kafka_programs(bench), bench.scale.repetitions, lambda one: one.run_tasks(bench, work)
    )
    quantity, unit = f"{LONG:g} s tasks, 500 KB", RECEIVED
    return [Figure(REFETCH, quantity, one, unit, tuple(run.received for run in runs[one])) for one in runs]
