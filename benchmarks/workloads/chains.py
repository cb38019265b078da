"""Chains of follow-up requests: one at a time, and many at once, under two guarantees in turn."""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

from benchmarks.endpoint import round_robin
from benchmarks.figures import TIMES, Figure, quantile, ratios
from benchmarks.processes import worker
from benchmarks.traffic import Reader, produce, warm_up
from benchmarks.workloads.latency import GAP
from worker.codec import encode_request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import confluent_kafka as ck

    from benchmarks.bench import Bench

    Send = Callable[[Sequence[int]], None]

NAME = "chains"
LINKS = 5  # tasks in a chain
ONCE, LEAST = GUARANTEES = ("exactly-once", "at-least-once")
IDLE = f"chain of {LINKS} empty tasks, idle, p50"
MANY = f"chains of {LINKS} empty tasks"
FEWER = 10  # idle chains are fewer than round trips by this factor
_MILLI = 1e3


def run(bench: Bench) -> list[Figure]:
    """Return the time of one chain through an idle worker, and the rate of many chains."""
    idle: dict[str, list[float]] = {name: [] for name in GUARANTEES}
    rates: dict[str, list[float]] = {name: [] for name in GUARANTEES}
    for repetition in range(bench.scale.repetitions):
        for name in GUARANTEES:
            trip, rate = _measure(bench, name)
            idle[name].append(trip)
            rates[name].append(rate)
            bench.echo(f"{NAME} {repetition + 1}/{bench.scale.repetitions}: {name} {trip:.1f} ms, {rate:.0f} tasks/s")
    return [
        Figure(NAME, IDLE, f"{ONCE} ÷ {LEAST}", TIMES, ratios(idle[ONCE], idle[LEAST])),
        *(Figure(NAME, IDLE, name, "ms", tuple(values)) for name, values in idle.items()),
        Figure(NAME, MANY, f"{ONCE} ÷ {LEAST}", TIMES, ratios(rates[ONCE], rates[LEAST])),
        *(Figure(NAME, MANY, name, "tasks/s", tuple(values)) for name, values in rates.items()),
    ]


def _measure(bench: Bench, guarantee: str) -> tuple[float, float]:
    """Return the median time of an idle chain in ms, and the tasks per second of many chains."""
    endpoint = bench.endpoint()
    group = worker(endpoint, "chain", WORKER_GUARANTEE=guarantee)
    with contextlib.closing(Reader(endpoint, group)) as reader, group:
        send = functools.partial(_send, warm_up(endpoint, reader), endpoint.request_topic)
        times = [_one(send, reader, number) for number in range(bench.scale.round_trips // FEWER)]
        return quantile(times, 0.5) * _MILLI, _many(send, reader, bench.scale.round_trips)


def _one(send: Send, reader: Reader, sequence: int) -> float:
    time.sleep(random.uniform(*GAP))
    begin = time.perf_counter()
    send([sequence])
    _receive(reader, [sequence])
    return time.perf_counter() - begin


def _many(send: Send, reader: Reader, chains: int) -> float:
    sequences = range(chains)
    begin = time.perf_counter()
    send(sequences)
    _receive(reader, sequences)
    return chains * LINKS / (time.perf_counter() - begin)


def _send(producer: ck.Producer, topic: str, sequences: Sequence[int]) -> None:
    for sequence in sequences:
        key, partition = round_robin(sequence)
        produce(producer, topic, encode_request(sequence, str(LINKS - 1)), key, partition)
    producer.flush()


def _receive(reader: Reader, sequences: Sequence[int]) -> None:
    """Wait for the answers of all links. Raise RuntimeError if one link is answered twice."""
    answered = Counter(answer.sequence for answer in reader.answers(len(sequences) * LINKS))
    if answered != dict.fromkeys(sequences, LINKS):
        raise RuntimeError(f"{len(sequences)} chains have other answers than {LINKS} each")
