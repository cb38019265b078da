"""What exactly-once costs, with empty tasks, beside the worker's own at-least-once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.figures import TIMES, Figure, ratios
from benchmarks.programs import worker
from benchmarks.workloads.throughput import Run, figures, one_run

if TYPE_CHECKING:
    from benchmarks.bench import Bench

NAME = "exactly-once"
GUARANTEES = ("exactly-once", "at-least-once")


def run(bench: Bench) -> list[Figure]:
    """Both guarantees, in turn."""
    runs: dict[str, list[Run]] = {guarantee: [] for guarantee in GUARANTEES}
    for repetition in range(bench.scale.repetitions // 2):
        for guarantee in GUARANTEES:
            runs[guarantee].append(
                one_run(bench, lambda place, value=guarantee: worker(place, "nothing", WORKER_GUARANTEE=value))  # type: ignore[misc]
            )
            bench.say(f"{NAME} {repetition + 1}: {guarantee} {runs[guarantee][-1].per_second:,.0f}/s")
    once, least = ([run.per_second for run in runs[guarantee]] for guarantee in GUARANTEES)
    ratio = Figure(NAME, "empty tasks/s", "exactly-once ÷ at-least-once", TIMES, ratios(once, least), "exactly-once")
    return [ratio, *figures(NAME, "exactly-once", runs["exactly-once"])]
