"""From the start of the process to the start of the first task, with requests waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.comparison import interleave, ratios_of_worker
from benchmarks.figures import Figure
from benchmarks.names import WORKER
from benchmarks.workloads.peers import all_programs

if TYPE_CHECKING:
    from benchmarks.bench import Bench

NAME = "start-up"
QUANTITY = "process start to first task"


def run(bench: Bench) -> list[Figure]:
    """Measure several starts, each in a new group."""
    times = interleave(bench, NAME, all_programs(bench), bench.scale.repetitions, lambda one: one.start(bench))
    goals = {WORKER: NAME}
    found = [Figure(NAME, QUANTITY, one, "s", tuple(values), goals.get(one, "")) for one, values in times.items()]
    return [*ratios_of_worker(NAME, QUANTITY, times, {}), *found]
