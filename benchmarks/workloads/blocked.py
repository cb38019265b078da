"""Short tasks behind a long one: how long do they wait?

The broker has Kafka's default heartbeat interval. The suite's usual interval is shorter, which would help the worker.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from benchmarks.bench import another_broker
from benchmarks.comparison import interleave
from benchmarks.figures import Figure, supported_quantile
from benchmarks.kafka_programs import KafkaProgram, Spec
from benchmarks.names import EXTRA_SLOT, NO_STATE_TOPIC, WORKER
from benchmarks.processes import ProcessGroup, replicas
from benchmarks.runs import TaskRun, Work
from benchmarks.workloads.peers import all_programs

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.comparison import Program
    from benchmarks.endpoint import Endpoint

NAME = "short-behind-long"
SHORT, COUNT = 0.01, 400  # length in seconds and number of the short tasks
QUANTILES = {"p50": 0.5, "p95": 0.95}
HEARTBEATS = {"group.consumer.heartbeat.interval.ms": "5000", "group.consumer.min.heartbeat.interval.ms": "5000"}
# As the peers, none of which keeps an order here.
UNORDERED = {"WORKER_ORDERING": "unordered"}
# What must be detached has to run for a while first. The default of a minute is for tasks of hours.
LONG_AFTER = 3.0  # seconds
DETACHED = {**UNORDERED, "WORKER_LONG_AFTER": f"{LONG_AFTER:g}s"}
SLOT = {**DETACHED, "WORKER_ISOLATION": "process", "WORKER_EXTRA_SLOTS": "1"}


def run(bench: Bench) -> list[Figure]:
    """Send one long task, then short ones to all partitions."""
    seconds = bench.scale.long_task
    work = Work([seconds, *[SHORT] * COUNT], short=False)
    with another_broker(bench, HEARTBEATS) as slow:
        runs = interleave(slow, NAME, _programs(slow), slow.scale.repetitions, lambda one: one.run_tasks(slow, work))
    return figures({name: [waits(one, seconds) for one in several] for name, several in runs.items()}, seconds)


def _programs(bench: Bench) -> list[Program]:
    def make(count: int, settings: dict[str, str], endpoint: Endpoint, spec: Spec) -> ProcessGroup:
        return replicas(endpoint, spec.handler, count, **settings)

    def detaching(count: int, settings: dict[str, str], endpoint: Endpoint, spec: Spec) -> ProcessGroup:
        return make(count, {**settings, "KAFKA_STATE_TOPIC": bench.state_topic()}, endpoint, spec)

    ours: list[Program] = [
        KafkaProgram(WORKER, functools.partial(detaching, 2, DETACHED), COUNT),
        KafkaProgram(EXTRA_SLOT, functools.partial(detaching, 1, SLOT), COUNT),
    ]
    if not bench.scale.peers:
        return ours
    without = KafkaProgram(NO_STATE_TOPIC, functools.partial(make, 2, UNORDERED), COUNT)
    return [*ours, without, *all_programs(bench)[1:]]


def waits(run: TaskRun, seconds: float) -> list[float]:
    """Return, for each short task, the seconds from the first start of any task to its end."""
    begin = min(span.started for span in run.spans)
    return [span.finished - begin for span in run.spans if span.finished - span.started < seconds / 2]


def figures(waited: dict[str, list[list[float]]], seconds: float) -> list[Figure]:
    """Return figures for each program: each quantile that enough tasks support, and the last task.

    With an extra slot, the last task also counts from when the long task is a long one.
    """
    found = []
    quantity = f"10 ms tasks behind one of {seconds:g} s"
    for name, repetitions in waited.items():
        for label, share in QUANTILES.items():
            values = [supported_quantile(times, share) for times in repetitions]
            if all(value is not None for value in values):
                found.append(Figure(NAME, f"{quantity}, {label}", name, "s", tuple(v for v in values if v is not None)))
        last = tuple(map(max, repetitions))
        found.append(Figure(NAME, f"{quantity}, last", name, "s", last, "blocked" if name == WORKER else ""))
        if name == EXTRA_SLOT:
            # Nothing runs beside a task before it is long, and the short tasks themselves take four seconds.
            after = tuple(seconds - LONG_AFTER for seconds in last)
            found.append(Figure(NAME, f"{quantity}, last after it is long", name, "s", after, "blocked, extra slot"))
    return found
