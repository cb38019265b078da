"""The round trip of one task at a time through an idle program."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from typing import TYPE_CHECKING

from benchmarks.comparison import interleave
from benchmarks.figures import TIMES, Figure, quantile, ratios, supported_quantile
from benchmarks.names import BARE, WORKER
from benchmarks.processes import ProcessGroup, bare_loop, worker
from benchmarks.traffic import Reader, round_trips, warm_up
from benchmarks.workloads.peers import all_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.bench import Bench
    from benchmarks.endpoint import Endpoint

    Trips = Callable[[list[float]], Iterator[float]]

NAME = "latency"
BLOCK = 50  # round trips of one program in a row, while both run
GAP = (0.005, 0.03)  # random seconds from an answer to the next request, in step with no timer
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_MILLI = 1e3


def run(bench: Bench) -> list[Figure]:
    """Measure worker and bare loop in turn while both run, then each peer alone, with fewer round trips."""
    rounds = _with_bare_loop(bench)
    peers = [one for one in all_programs(bench) if one.name != WORKER]
    count = bench.scale.repetitions
    times = -(-bench.scale.round_trips // count)  # rounded up: all together support a p99
    alone = interleave(bench, NAME, peers, count, lambda one: one.round_trips(bench, _gaps(times)))
    for name, runs in alone.items():
        rounds[name] = [[seconds * _MILLI for seconds in times] for times in runs]
    return figures(rounds)


def _with_bare_loop(bench: Bench) -> dict[str, list[list[float]]]:
    endpoints = {WORKER: bench.endpoint(), BARE: bench.endpoint()}
    groups = [worker(endpoints[WORKER], "nothing"), bare_loop(endpoints[BARE])]
    return rounds_of(bench, NAME, endpoints, groups)


def rounds_of(
    bench: Bench,
    workload: str,
    endpoints: dict[str, Endpoint],
    groups: list[ProcessGroup],
    look: Callable[[], None] = lambda: None,
) -> dict[str, list[list[float]]]:
    """Return the milliseconds of every round trip by repetition, for programs that all run and take turns.

    ``look`` is called after each repetition.
    """
    rounds: dict[str, list[list[float]]] = {name: [] for name in endpoints}
    with contextlib.ExitStack() as stack:
        trips = {name: _start(stack, group, endpoints[name]) for name, group in zip(endpoints, groups, strict=True)}
        for repetition in range(bench.scale.repetitions):
            for name, times in _round(bench.scale.round_trips, trips).items():
                rounds[name].append(times)
                bench.echo(f"{workload} {repetition + 1}: {name} p50 {quantile(times, 0.5):.2f} ms")
            look()
    return rounds


def _gaps(count: int) -> list[float]:
    return [random.uniform(*GAP) for _ in range(count)]


def _start(stack: contextlib.ExitStack, group: ProcessGroup, endpoint: Endpoint) -> Trips:
    """Start a program. Return what makes round trips through it."""
    stack.enter_context(group)
    reader = stack.enter_context(contextlib.closing(Reader(endpoint, group)))
    return functools.partial(round_trips, endpoint, reader, warm_up(endpoint, reader))


def _round(count: int, trips: dict[str, Trips]) -> dict[str, list[float]]:
    """Make that many round trips with each program. Return milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in trips}
    while any(len(found) < count for found in times.values()):
        for name, make in trips.items():
            times[name] += [seconds * _MILLI for seconds in make(_gaps(BLOCK))]
    return times


def figures(rounds: dict[str, list[list[float]]]) -> list[Figure]:
    """Return the quantiles of each repetition, or of all together, if enough round trips lie beyond them."""
    found = []
    for label, share in QUANTILES.items():
        quantity = f"idle round trip, {label}"
        values = {name: _supported(times, share) for name, times in rounds.items()}
        bare = values.get(BARE, ())
        if bare and len(bare) == len(values[WORKER]):  # the two took turns
            ratio = ratios(values[WORKER], bare)
            found.append(Figure(NAME, quantity, f"{WORKER} ÷ {BARE}", TIMES, ratio, label))
        found += [Figure(NAME, quantity, name, "ms", ours) for name, ours in values.items() if ours]
    return found


def _supported(repetitions: list[list[float]], share: float) -> tuple[float, ...]:
    """Return a value for each repetition if each supports the quantile, else one for all, else none."""
    each = [supported_quantile(times, share) for times in repetitions]
    if all(value is not None for value in each):
        return tuple(value for value in each if value is not None)
    together = supported_quantile(list(itertools.chain.from_iterable(repetitions)), share)
    return () if together is None else (together,)
