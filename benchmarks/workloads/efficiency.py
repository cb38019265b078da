"""CPU-bound tasks of 10 ms, 100 ms and 1 s: how much of the processes' time is spent in tasks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.broker import PARTITIONS
from benchmarks.figures import TIMES, Figure, efficiency
from benchmarks.programs import PEERS, PROCESSES, Program, peer, worker
from benchmarks.traffic import Reader, span_of, warm_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench
    from benchmarks.traffic import Place

NAME = "efficiency"
SIZES = {"10 ms": 0.01, "100 ms": 0.1, "1 s": 1.0}
SIMPLE_TASKS = 20  # of 10 ms; the simple design needs a quarter of a second for each


class Run(NamedTuple):
    """Shares of 1. See ``figures.Efficiency`` for the first two."""

    together: float
    each: float
    cpu: float  # CPU seconds inside tasks ÷ CPU seconds of all processes of the program


def run(bench: Bench) -> list[Figure]:
    """The worker with every size, the simple design with the shortest."""
    found: dict[str, list[Run]] = {size: [] for size in SIZES}
    for repetition in range(2 if bench.scale.repetitions > 2 else 1):  # noqa: PLR2004 - the quick form once
        for size, seconds in SIZES.items():
            found[size].append(_one_run(bench, seconds, _tasks(bench, seconds), lambda place: worker(place, "spin")))
            bench.say(f"{NAME} {repetition + 1}: {size} tasks {found[size][-1].together:.4f}")
    simple = [_one_run(bench, SIZES["10 ms"], SIMPLE_TASKS, lambda place: peer("simple", place, "spin"))]
    bench.say(f"{NAME}: simple design, 10 ms tasks {simple[0].together:.4f}")
    figures = [figure for size in SIZES for figure in _figures(size, "worker", found[size], goal=size)]
    return [*figures, *_figures("10 ms", PEERS["simple"], simple)]


def _tasks(bench: Bench, seconds: float) -> int:
    """As many for every partition, so that all processes end together."""
    return max(1, round(bench.scale.spin_seconds * PROCESSES / PARTITIONS / seconds)) * PARTITIONS


def _one_run(bench: Bench, seconds: float, tasks: int, program: Callable[[Place], Program]) -> Run:
    place = bench.place()
    running = program(place)
    reader = Reader(place, running)
    with running:
        warm_up(place, reader)
        cpu = running.cpu_seconds()
        bench.fill(place.request_topic, itertools.repeat(str(seconds), tasks))
        spans = [span_of(answer) for answer in reader.answers(tasks)]
        cpu = running.cpu_seconds() - cpu
    reader.close()
    return Run(*efficiency(spans), cpu=sum(span.cpu for span in spans) / cpu)


def _figures(size: str, program: str, runs: list[Run], goal: str = "") -> list[Figure]:
    together, each, cpu = zip(*runs, strict=True)
    quantity = f"{size} tasks"
    return [
        Figure(NAME, quantity, program, f"task time ÷ (processes {TIMES} time)", together, goal),
        Figure(NAME, quantity, program, "the same, each process in its own time", each),
        Figure(NAME, quantity, program, "CPU in tasks ÷ CPU of all processes", cpu),
    ]
