"""The cost of each guarantee, each ordering and batches with empty tasks, compared with the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.comparison import backlog_figures, interleave, rates
from benchmarks.figures import TIMES, Figure, ratios
from benchmarks.kafka_programs import the_worker

if TYPE_CHECKING:
    from benchmarks.bench import Bench

NAME = "guarantees"
LEAST = "at-least-once"
ONCE = "exactly-once"
# By name: the settings that differ from the defaults.
VARIANTS: dict[str, dict[str, str]] = {
    LEAST: {},
    ONCE: {"WORKER_GUARANTEE": ONCE},
    "at-most-once": {"WORKER_GUARANTEE": "at-most-once"},
    "order by key": {"WORKER_ORDERING": "key"},
    "unordered": {"WORKER_ORDERING": "unordered"},
    "batches of 100": {"WORKER_BATCH_SIZE": "100", "handler": "acknowledge"},
}


def run(bench: Bench) -> list[Figure]:
    """Measure all of them in turn, with the defaults first in every round."""
    total, load = bench.scale.empty_tasks, bench.load
    programs = [the_worker(total, name, **settings) for name, settings in VARIANTS.items()]
    runs = interleave(bench, NAME, programs, bench.scale.repetitions, lambda one: one.drain_backlog(bench, load))
    values = {name: rates(flows) for name, flows in runs.items()}
    relative = [
        Figure(
            NAME, "empty tasks", f"{name} ÷ {LEAST}", TIMES, ratios(rate, values[LEAST]), ONCE if name == ONCE else ""
        )
        for name, rate in values.items()
        if name != LEAST and LEAST in values
    ]
    return [*relative, *backlog_figures(NAME, "empty tasks", runs)]
