"""Empty tasks by all programs in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.comparison import backlog_figures, interleave, rates, ratios_of_worker
from benchmarks.kafka_programs import arroyo, parallel_consumer, share_group, the_worker
from benchmarks.names import ARROYO, PARALLEL, SHARE_GROUP
from benchmarks.queue_programs import celery, dramatiq
from benchmarks.ray_program import ray

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.comparison import Program
    from benchmarks.figures import Figure

NAME = "peers"
QUANTITY = "empty tasks, peers"
SLOWER = 6  # factor between the tasks of the worker and those of other programs that are fast
MUCH_SLOWER = 60  # the same for queues, so that every run takes a few seconds


def all_programs(bench: Bench) -> list[Program]:
    """Return the worker and, if the scale includes peers, its alternatives."""
    return _all(bench) if bench.scale.peers else _all(bench)[:1]


def _all(bench: Bench) -> list[Program]:
    made, tasks = bench.environments, bench.scale.empty_tasks
    return [
        the_worker(tasks),
        arroyo(made, tasks // SLOWER),
        parallel_consumer(made, tasks // SLOWER),
        share_group(made, tasks // SLOWER),
        celery(made, tasks // MUCH_SLOWER),
        celery(made, tasks // MUCH_SLOWER, rabbit=True),
        dramatiq(made, tasks // MUCH_SLOWER),
        dramatiq(made, tasks // MUCH_SLOWER, prefetch=1),
        ray(made, tasks // SLOWER),
    ]


def kafka_programs(bench: Bench) -> list[Program]:
    """Return those that read Kafka."""
    return all_programs(bench)[:4]


def ordered_programs(bench: Bench) -> list[Program]:
    """Return those that keep the order of a key. arroyo's pool and share groups run its requests in parallel."""
    return [one for one in kafka_programs(bench) if one.name not in {ARROYO, SHARE_GROUP}]


def run(bench: Bench) -> list[Figure]:
    """Measure all programs. Those that read Kafka get the same requests, queues get fewer."""
    runs = interleave(
        bench, NAME, _all(bench), bench.scale.repetitions, lambda one: one.drain_backlog(bench, bench.load)
    )
    values = {name: rates(backlogs) for name, backlogs in runs.items()}
    goals = {PARALLEL: PARALLEL}
    return [*ratios_of_worker(NAME, QUANTITY, values, goals), *backlog_figures(NAME, QUANTITY, runs)]
