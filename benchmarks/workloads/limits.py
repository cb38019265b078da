"""A task reaches its hard time limit: how much later does the next one start?

One process runs all tasks in turn. Every second short task comes after a task that must be killed.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.comparison import interleave
from benchmarks.figures import Figure
from benchmarks.kafka_programs import KafkaProgram, Spec
from benchmarks.names import PROCESS
from benchmarks.processes import ProcessGroup, replicas
from benchmarks.queue_programs import celery_with_limit
from benchmarks.runs import TaskRun, Work

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.comparison import Program
    from benchmarks.endpoint import Endpoint

NAME = "time-limit"
LIMIT = 1.0  # seconds
QUANTITY = f"hard limit of {LIMIT:g} s: next task starts later by"
ENDLESS = 60.0  # seconds of CPU time of a task that is killed
# The worker asks a task to stop before it kills it. The limit includes both times.
SETTINGS = {
    "WORKER_ISOLATION": "process",
    "WORKER_TASK_TIMEOUT": "900ms",
    "WORKER_CANCEL_GRACE": "100ms",
    "WORKER_MAX_ATTEMPTS": "1",
}


def run(bench: Bench) -> list[Figure]:
    """Measure the worker with process isolation, and Celery."""
    kills = bench.scale.crashes
    work = Work([*[0.0, ENDLESS] * kills, 0.0], short=False)
    runs = interleave(
        bench, NAME, _programs(bench), bench.scale.repetitions, lambda one: delays(one.run_tasks(bench, work), kills)
    )
    values = {name: tuple(itertools.chain.from_iterable(several)) for name, several in runs.items()}
    return [Figure(NAME, QUANTITY, name, "ms", each, NAME if name == PROCESS else "") for name, each in values.items()]


def _programs(bench: Bench) -> list[Program]:
    def make(endpoint: Endpoint, spec: Spec) -> ProcessGroup:
        return replicas(endpoint, spec.handler, 1, **SETTINGS)

    ours = KafkaProgram(PROCESS, make, at_most=0, partitions=1)
    return [ours, celery_with_limit(bench.environments, LIMIT)] if bench.scale.peers else [ours]


def delays(run: TaskRun, kills: int) -> list[float]:
    """Return milliseconds from the end of a short task to the start of the next short one, minus the limit.

    They include the start of the task that is killed. Raise ValueError if a short task is missing.
    """
    short = sorted(
        (span for span in run.spans if span.finished - span.started < LIMIT / 2), key=lambda one: one.started
    )
    if len(short) != kills + 1:
        raise ValueError(f"{len(short)} short tasks have ended, not {kills + 1}")
    return [1000 * (after.started - before.finished - LIMIT) for before, after in itertools.pairwise(short)]
