"""From the start of the process to the start of the first task, with requests waiting."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from benchmarks.broker import PARTITIONS
from benchmarks.figures import Figure
from benchmarks.programs import worker
from benchmarks.traffic import Reader, span_of

if TYPE_CHECKING:
    from benchmarks.bench import Bench

NAME = "start-up"


def run(bench: Bench) -> list[Figure]:
    """Several starts, each in a group of its own."""
    times = []
    for number in range(bench.scale.starts):
        times.append(_start(bench))
        bench.say(f"{NAME} {number + 1}/{bench.scale.starts}: {times[-1]:.2f} s")
    return [Figure(NAME, "process start to first task", "worker", "s", tuple(times), NAME)]


def _start(bench: Bench) -> float:
    place = bench.place()
    bench.fill(place.request_topic, ["task"] * PARTITIONS)
    program = worker(place, "nothing")
    with contextlib.closing(Reader(place, program)) as reader, program:
        return min(span_of(answer).started for answer in reader.answers(PARTITIONS)) - program.started_at
