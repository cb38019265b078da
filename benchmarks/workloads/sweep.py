"""parallel-consumer with different concurrency and commit intervals: are its settings here near its best ones?"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.comparison import backlog_figures, interleave
from benchmarks.kafka_programs import parallel_consumer

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.figures import Figure

NAME = "sweep-parallel-consumer"
THREADS = (16, 100, 400)  # the first is its default
COMMIT_MS = (100, 1_000)  # its default of 5 s is longer than the short runs
SLOWER = 12  # factor between the watched backlog of the worker and of this program


def run(bench: Bench) -> list[Figure]:
    """Measure empty tasks with each pair of settings."""
    made, tasks = bench.environments, bench.scale.empty_tasks // SLOWER
    programs = [parallel_consumer(made, tasks, *pair) for pair in itertools.product(THREADS, COMMIT_MS)]
    runs = interleave(bench, NAME, programs, bench.scale.repetitions, lambda one: one.drain_backlog(bench, bench.load))
    return backlog_figures(NAME, "empty tasks, parallel-consumer", runs)
