"""A second replica starts while the first one runs its tasks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from benchmarks.broker import PARTITIONS
from benchmarks.figures import Figure
from benchmarks.names import WORKER
from benchmarks.processes import worker
from benchmarks.runs import Work
from benchmarks.traffic import Reader, span_of, warm_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.bench import Bench
    from benchmarks.figures import Span
    from benchmarks.processes import ProcessGroup

NAME = "scale-out"
ROUNDS = 4  # tasks in each partition
QUANTITY = "second replica started in mid-task"


def run(bench: Bench) -> list[Figure]:
    """Return how long the second replica takes to begin work, and how many tasks ran twice."""
    delays, repeated = [], []
    for repetition in range(bench.scale.repetitions):
        delay, twice = _once(bench)
        delays.append(delay)
        repeated.append(float(twice))
        bench.echo(f"{NAME} {repetition + 1}/{bench.scale.repetitions}: {delay:.2f} s, {twice} tasks done twice")
    return [
        Figure(NAME, f"{QUANTITY}: its start to its first task", WORKER, "s", tuple(delays)),
        Figure(NAME, f"{QUANTITY}: answered twice", WORKER, "tasks", tuple(repeated)),
    ]


def _once(bench: Bench) -> tuple[float, int]:
    endpoint, seconds = bench.endpoint(), bench.scale.long_task / ROUNDS
    work = Work([seconds] * PARTITIONS * ROUNDS, short=False)
    first = worker(endpoint, "spin", WORKER_PROCESSES="1", WORKER_REPLICA="bench-0")
    second = worker(endpoint, "spin", WORKER_PROCESSES="1", WORKER_REPLICA="bench-1")
    with contextlib.closing(Reader(endpoint, first)) as reader, first:
        warm_up(endpoint, reader)
        bench.fill(endpoint.request_topic, work.payloads)
        spans = [span_of(reader.next())]  # the first replica is now running its second task
        with second:
            spans += _rest(bench, endpoint.ack_topic, reader, second, len(work.lengths))
            return first_start(spans, spans[0].worker) - second.started_at, len(spans) - len(work.lengths)


def _rest(bench: Bench, ack_topic: str, reader: Reader, second: ProcessGroup, tasks: int) -> list[Span]:
    """Return the other answers, including all that are in the topic at the end."""
    spans = [span_of(answer) for answer in reader.answers(tasks - 1)]
    second.check()
    more = bench.broker.records(ack_topic) - PARTITIONS - tasks  # the warm-up has answers, too
    return [*spans, *(span_of(answer) for answer in reader.answers(more))]


def first_start(spans: Sequence[Span], known: str) -> float:
    """Return when a task first started in an unknown process. Raise ValueError if none did."""
    return min(span.started for span in spans if span.worker != known)
