"""From the start of the process to the start of the first task, with requests waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contest import WORKER, in_turns, versus
from benchmarks.figures import Figure
from benchmarks.workloads.beside import everyone

if TYPE_CHECKING:
    from benchmarks.bench import Bench

NAME = "start-up"
QUANTITY = "process start to first task"


def run(bench: Bench) -> list[Figure]:
    """Several starts, each in a group of its own."""
    times = in_turns(bench, NAME, everyone(bench), bench.scale.starts, lambda one: one.start(bench))
    goals = {WORKER: NAME}
    found = [Figure(NAME, QUANTITY, one, "s", tuple(values), goals.get(one, "")) for one, values in times.items()]
    return [*versus(NAME, QUANTITY, times, {}), *found]
