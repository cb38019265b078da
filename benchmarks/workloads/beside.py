"""Empty tasks by all programs of the kind, in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contest import flow_figures, in_turns, rates, versus
from benchmarks.kafka_programs import arroyo, parallel_consumer, the_worker
from benchmarks.queue_programs import celery, dramatiq

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.contest import Contestant
    from benchmarks.figures import Figure

NAME = "peers"
QUANTITY = "empty tasks, peers"


SLOWER = 6  # times; tasks that other programs which read Kafka are watched for are so many times fewer
MUCH_SLOWER = 60  # the same for queues, so that all take some seconds


def everyone(bench: Bench) -> list[Contestant]:
    """The worker and, if the scale lets them take part, what would be picked instead."""
    return _all(bench) if bench.scale.everywhere else _all(bench)[:1]


def _all(bench: Bench) -> list[Contestant]:
    made, tasks = bench.environments, bench.scale.empty_tasks
    return [
        the_worker(tasks),
        arroyo(made, tasks // SLOWER),
        parallel_consumer(made, tasks // SLOWER),
        celery(made, tasks // MUCH_SLOWER),
        dramatiq(made, tasks // MUCH_SLOWER),
    ]


def with_order(bench: Bench) -> list[Contestant]:
    """Those that keep an order of requests."""
    return everyone(bench)[:3]


def run(bench: Bench) -> list[Figure]:
    """The same requests for all that read Kafka; queues are filled with fewer."""
    runs = in_turns(bench, NAME, _all(bench), bench.scale.of_peers, lambda one: one.flow(bench, bench.load))
    values = {name: rates(flows) for name, flows in runs.items()}
    return [*versus(NAME, QUANTITY, values, {}), *flow_figures(NAME, QUANTITY, runs)]
