"""CPU-bound tasks of one length: how much of the machine goes into them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from benchmarks.broker import PARTITIONS
from benchmarks.contest import SHARE, WORKER, Timed, Work, in_turns, versus
from benchmarks.figures import TIMES, Figure, efficiency
from benchmarks.kafka_programs import simple_design, the_worker
from benchmarks.programs import PROCESSES
from benchmarks.workloads.beside import everyone

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

SIZES = {"1 ms": 0.001, "10 ms": 0.01, "100 ms": 0.1, "1 s": 1.0}
SHORT = 0.05  # seconds: below it, programs take their settings for short tasks
WITH_VARIANTS = "10 ms"  # the size at which exactly-once and the simple design take part
EXACTLY_ONCE = "worker, exactly-once"
SIMPLE_TASKS = 20  # the simple design needs a quarter of a second for each


def workloads() -> dict[str, Callable[[Bench], list[Figure]]]:
    """One for each size."""
    return {_name(size): functools.partial(run, size) for size in SIZES}


def _name(size: str) -> str:
    return f"tasks-{size.replace(' ', '')}"


def run(size: str, bench: Bench) -> list[Figure]:
    """Everyone in turn; at one size exactly-once as well, and the simple design once."""
    name, seconds = _name(size), SIZES[size]
    # As many for every partition, so that all processes end together.
    count = max(1, round(bench.scale.spin_seconds * PROCESSES / PARTITIONS / seconds)) * PARTITIONS
    contestants = everyone(bench)
    if size == WITH_VARIANTS:
        contestants.insert(1, the_worker(count, EXACTLY_ONCE, WORKER_GUARANTEE="exactly-once"))
    work = Work([seconds] * count, short=seconds < SHORT)
    runs = in_turns(bench, name, contestants, bench.scale.of_peers, lambda one: one.timed(bench, work))
    shares = {one: [count * seconds / PROCESSES / timed.makespan for timed in runs[one]] for one in runs}
    if size == WITH_VARIANTS:
        few = Work([seconds] * SIMPLE_TASKS, short=True)
        slow = in_turns(bench, name, [simple_design()], 1, lambda one: one.timed(bench, few))
        shares |= {one: [SIMPLE_TASKS * seconds / PROCESSES / timed.makespan for timed in slow[one]] for one in slow}
    quantity = f"{size} tasks"
    return [
        *versus(name, quantity, shares, {}),
        *(Figure(name, quantity, one, SHARE, tuple(values)) for one, values in shares.items()),
        *(
            Figure(
                name,
                quantity,
                one,
                "server's CPU ms/task",
                tuple(1000 * timed.server_cpu / count for timed in runs[one]),
            )
            for one in runs
        ),
        *_own(name, quantity, WORKER, runs, size),
        *_own(name, quantity, EXACTLY_ONCE, runs, f"exactly-once {size}"),
    ]


def _own(name: str, quantity: str, program: str, runs: dict[str, list[Timed]], goal: str) -> list[Figure]:
    """What the worker's numbers to reach are about: its processes' time, and what its own threads take of it."""
    if program not in runs:
        return []
    both = [efficiency(timed.spans) for timed in runs[program]]
    cpu = [sum(span.cpu for span in timed.spans) / timed.cpu for timed in runs[program]]
    return [
        Figure(
            name, quantity, program, f"task time ÷ (processes {TIMES} time)", tuple(one.together for one in both), goal
        ),
        Figure(name, quantity, program, "the same, each process in its own time", tuple(one.each for one in both)),
        Figure(name, quantity, program, "CPU in tasks ÷ CPU of all processes", tuple(cpu)),
    ]
