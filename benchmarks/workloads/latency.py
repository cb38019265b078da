"""An idle program: a request is produced, its answer is seen by a consumer. One at a time."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

from benchmarks.figures import TIMES, Figure, quantile, ratios
from benchmarks.programs import PEERS, Program, peer, worker
from benchmarks.traffic import Place, Reader, round_trips, warm_up

if TYPE_CHECKING:
    from benchmarks.bench import Bench

NAME = "latency"
BLOCK = 50  # round trips of one program before it is the other's turn; both run all the time
GAP = (0.005, 0.03)  # seconds between an answer and the next request, random: no beat with anybody's timer
QUANTILES = {"p50": 0.5, "p99": 0.99}
_MILLI = 1e3


def run(bench: Bench) -> list[Figure]:
    """Blocks of round trips by the worker and by the bare loop, in turn."""
    places = {"worker": bench.place(), PEERS["bare"]: bench.place()}
    programs = [worker(places["worker"], "nothing"), peer("bare", places[PEERS["bare"]])]
    rounds: dict[str, list[list[float]]] = {name: [] for name in places}
    with contextlib.ExitStack() as stack:
        readers = {name: _start(stack, program, places[name]) for name, program in zip(places, programs, strict=True)}
        for repetition in range(bench.scale.repetitions):
            for name, times in _round(bench.scale.round_trips, places, readers).items():
                rounds[name].append(times)
                bench.say(f"{NAME} {repetition + 1}: {name} p50 {quantile(times, 0.5):.2f} ms")
    return _figures(rounds)


def _start(stack: contextlib.ExitStack, program: Program, place: Place) -> Reader:
    stack.enter_context(program)
    reader = stack.enter_context(contextlib.closing(Reader(place, program)))
    warm_up(place, reader)
    return reader


def _round(count: int, places: dict[str, Place], readers: dict[str, Reader]) -> dict[str, list[float]]:
    """So many round trips by each, in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in places}
    while any(len(found) < count for found in times.values()):
        for name, place in places.items():
            gaps = [random.uniform(*GAP) for _ in range(BLOCK)]
            times[name] += [seconds * _MILLI for seconds in round_trips(place, readers[name], gaps)]
    return times


def _figures(rounds: dict[str, list[list[float]]]) -> list[Figure]:
    found = []
    bare = PEERS["bare"]
    for label, share in QUANTILES.items():
        values = {name: tuple(quantile(times, share) for times in rounds[name]) for name in rounds}
        ratio = ratios(values["worker"], values[bare])
        found.append(Figure(NAME, f"idle round trip, {label}", "worker ÷ bare loop", TIMES, ratio, label))
        found += [Figure(NAME, f"idle round trip, {label}", name, "ms", values[name]) for name in rounds]
    for name, times in rounds.items():
        every = [time for group in times for time in group]
        found.append(Figure(NAME, "idle round trip, p99.9 of all", name, "ms", (quantile(every, 0.999),)))
    return found
