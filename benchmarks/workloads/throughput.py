"""Empty tasks: how many per second, and at what cost, compared with a bare loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.comparison import backlog_figures, interleave, rates, ratios_of_worker
from benchmarks.kafka_programs import bare_loop, the_worker
from benchmarks.names import BARE

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.comparison import Program
    from benchmarks.figures import Figure

NAME = "throughput"
QUANTITY = "empty tasks"


def run(bench: Bench) -> list[Figure]:
    """Measure worker and bare loop in turn.

    The first run of each does not count: the broker has just started and still compiles on the cores that it shares.
    """
    total, load = bench.scale.empty_tasks, bench.load
    programs: list[Program] = [the_worker(total), bare_loop(total)]
    runs = interleave(bench, NAME, programs, 1 + bench.scale.repetitions, lambda one: one.drain_backlog(bench, load))
    runs = {name: backlogs[1:] for name, backlogs in runs.items() if len(backlogs) > 1}
    values = {name: rates(backlogs) for name, backlogs in runs.items()}
    return [*ratios_of_worker(NAME, QUANTITY, values, {BARE: "bare"}), *backlog_figures(NAME, QUANTITY, runs)]
