"""Payloads from small to large with empty tasks, and large ones with long tasks: what goes over the wire."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from benchmarks.contest import RECEIVED, Load, Work, flow_figures, in_turns, rates, versus
from benchmarks.figures import Figure
from benchmarks.kafka_programs import bare_loop
from benchmarks.workloads.beside import everyone, with_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

SIZES = {"100 B": (100, 1), "10 KB": (10_000, 2), "500 KB": (500_000, 50)}  # bytes; one of how many requests
LONG, LONG_TASKS, LONG_BYTES = 1.5, 16, 500_000  # seconds: long enough for a full queue to be paused
REFETCH = "refetch"


def workloads() -> dict[str, Callable[[Bench], list[Figure]]]:
    """One for each size, and one with long tasks."""
    sizes = {_name(size): functools.partial(run, size) for size in SIZES}
    return {**sizes, REFETCH: refetch}


def _name(size: str) -> str:
    return f"payload-{size.replace(' ', '')}"


def run(size: str, bench: Bench) -> list[Figure]:
    """Everyone, and the bare loop. All that waits is worked off, so that the bytes can be compared."""
    length, fewer = SIZES[size]
    load, quantity = Load("x" * length, max(200, bench.scale.payloads // fewer)), f"empty tasks, {size}"
    contestants = [*everyone(bench), bare_loop(load.waiting)]
    runs = in_turns(bench, _name(size), contestants, bench.scale.of_peers, lambda one: one.flow(bench, load))
    values = {name: rates(flows) for name, flows in runs.items()}
    return [*versus(_name(size), quantity, values, {}), *flow_figures(_name(size), quantity, runs)]


def refetch(bench: Bench) -> list[Figure]:
    """Long tasks with large payloads: a client that is paused throws away what it has fetched, and fetches it again."""
    work = Work([LONG] * LONG_TASKS, short=False, bulk=LONG_BYTES)
    runs = in_turns(bench, REFETCH, with_order(bench), 1, lambda one: one.timed(bench, work))
    quantity, unit = f"{LONG:g} s tasks, 500 KB", RECEIVED
    return [Figure(REFETCH, quantity, one, unit, tuple(timed.received for timed in runs[one])) for one in runs]
