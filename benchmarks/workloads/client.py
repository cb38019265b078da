"""``worker.Client``: round trips of an idle worker, compared with bare Kafka clients, and many tasks at once."""

from __future__ import annotations

import contextlib
import functools
import random
import time
from concurrent.futures import wait
from typing import TYPE_CHECKING

from benchmarks.figures import TIMES, Figure, quantile, ratios
from benchmarks.processes import environment, worker
from benchmarks.traffic import Reader, round_trips, warm_up
from benchmarks.workloads.latency import BLOCK, GAP
from worker import Client

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.workloads.latency import Trips

NAME = "client"
CLIENT, RAW = "worker.Client", "producer and consumer"
TRIP = "idle round trip, p50"
AT_ONCE = 10  # factor between tasks at once and round trips
_SECONDS = 60.0
_MILLI = 1e3


def run(bench: Bench) -> list[Figure]:
    """Measure both kinds of client in turn, with one worker."""
    endpoint = bench.endpoint()
    group = worker(endpoint, "nothing")
    medians: dict[str, list[float]] = {CLIENT: [], RAW: []}
    rates = []
    with contextlib.closing(Reader(endpoint, group)) as reader, group:
        trips = functools.partial(round_trips, endpoint, reader, warm_up(endpoint, reader))
        with Client(environment(endpoint, {})) as client:
            client.submit("").result(_SECONDS)
            for repetition in range(bench.scale.repetitions):
                for name, times in _round(bench.scale.round_trips, trips, client).items():
                    medians[name].append(quantile(times, 0.5) * _MILLI)
                    bench.echo(f"{NAME} {repetition + 1}: {name} p50 {medians[name][-1]:.2f} ms")
                rates.append(_at_once(client, AT_ONCE * bench.scale.round_trips))
    return [
        Figure(NAME, TRIP, f"{CLIENT} ÷ {RAW}", TIMES, ratios(medians[CLIENT], medians[RAW])),
        *(Figure(NAME, TRIP, name, "ms", tuple(values)) for name, values in medians.items()),
        Figure(NAME, "submitted at once, all results received", CLIENT, "tasks/s", tuple(rates)),
    ]


def _round(count: int, trips: Trips, client: Client) -> dict[str, list[float]]:
    """Return the seconds of at least ``count`` round trips of each. ``trips`` makes those without the client."""
    times: dict[str, list[float]] = {CLIENT: [], RAW: []}
    while len(times[RAW]) < count:
        gaps = [random.uniform(*GAP) for _ in range(BLOCK)]
        times[CLIENT] += [_trip(client, gap) for gap in gaps]
        times[RAW] += trips(gaps)
    return times


def _trip(client: Client, gap: float) -> float:
    time.sleep(gap)
    begin = time.perf_counter()
    client.submit("").result(_SECONDS)
    return time.perf_counter() - begin


def _at_once(client: Client, count: int) -> float:
    """Return tasks per second."""
    begin = time.perf_counter()
    futures = [client.submit("") for _ in range(count)]
    done = wait(futures, _SECONDS).done
    if len(done) < count:
        raise TimeoutError(f"{len(done)} of {count} tasks have a result after {_SECONDS:g} s")
    for future in done:
        future.result()
    return count / (time.perf_counter() - begin)
