"""An idle program: a task is sent, its answer is seen. One at a time."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

from benchmarks.contest import BARE, WORKER, in_turns
from benchmarks.figures import TIMES, Figure, quantile, ratios
from benchmarks.programs import Program, peer, worker
from benchmarks.traffic import Place, Reader, round_trips, warm_up
from benchmarks.workloads.beside import everyone

if TYPE_CHECKING:
    from benchmarks.bench import Bench

NAME = "latency"
BLOCK = 50  # round trips of one program before it is the other's turn; both run all the time
GAP = (0.005, 0.03)  # seconds between an answer and the next request, random: no beat with anybody's timer
QUANTILES = {"p50": 0.5, "p99": 0.99}
_MILLI = 1e3


def run(bench: Bench) -> list[Figure]:
    """Worker and bare loop in turn, both running all the time; then the peers, each alone."""
    rounds = _beside_bare(bench)
    peers = [one for one in everyone(bench) if one.name != WORKER]
    alone = in_turns(bench, NAME, peers, 1, lambda one: one.trips(bench, _gaps(bench.scale.round_trips)))
    for name, runs in alone.items():
        rounds[name] = [[seconds * _MILLI for seconds in times] for times in runs]
    return _figures(rounds)


def _beside_bare(bench: Bench) -> dict[str, list[list[float]]]:
    places = {WORKER: bench.place(), BARE: bench.place()}
    programs = [worker(places[WORKER], "nothing"), peer("bare", places[BARE])]
    rounds: dict[str, list[list[float]]] = {name: [] for name in places}
    with contextlib.ExitStack() as stack:
        readers = {name: _start(stack, program, places[name]) for name, program in zip(places, programs, strict=True)}
        for repetition in range(bench.scale.repetitions):
            for name, times in _round(bench.scale.round_trips, places, readers).items():
                rounds[name].append(times)
                bench.say(f"{NAME} {repetition + 1}: {name} p50 {quantile(times, 0.5):.2f} ms")
    return rounds


def _gaps(count: int) -> list[float]:
    return [random.uniform(*GAP) for _ in range(count)]


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
            times[name] += [seconds * _MILLI for seconds in round_trips(place, readers[name], _gaps(BLOCK))]
    return times


def _figures(rounds: dict[str, list[list[float]]]) -> list[Figure]:
    found = []
    bare = BARE
    for label, share in QUANTILES.items():
        values = {name: tuple(quantile(times, share) for times in rounds[name]) for name in rounds}
        for name in rounds:
            if name != WORKER:
                ratio, goal = ratios(values[WORKER], values[name]), label if name == bare else ""
                found.append(Figure(NAME, f"idle round trip, {label}", f"{WORKER} ÷ {name}", TIMES, ratio, goal))
        found += [Figure(NAME, f"idle round trip, {label}", name, "ms", values[name]) for name in rounds]
    for name, times in rounds.items():
        every = [time for group in times for time in group]
        found.append(Figure(NAME, "idle round trip, p99.9 of all", name, "ms", (quantile(every, 0.999),)))
    return found
