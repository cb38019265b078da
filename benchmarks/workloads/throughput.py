"""Empty tasks: how many a second, and at what cost, beside a bare loop and the simple design."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contest import BARE, SIMPLE, flow_figures, in_turns, rates, versus
from benchmarks.figures import TIMES, Figure, slow_rate
from benchmarks.kafka_programs import bare_loop, simple_design, the_worker

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.contest import Contestant

NAME = "throughput"
QUANTITY = "empty tasks"


def run(bench: Bench) -> list[Figure]:
    """Worker and bare loop in turn, the simple design once: it takes long and does not wander.

    The first run of each does not count: the broker has just been started, and compiles on the cores that it shares.
    """
    total, load = bench.scale.empty_tasks, bench.load
    contestants: list[Contestant] = [the_worker(total), bare_loop(total)]
    runs = in_turns(bench, NAME, contestants, 1 + bench.scale.repetitions, lambda one: one.flow(bench, load))
    runs = {name: flows[1:] for name, flows in runs.items() if len(flows) > 1}
    found = versus(NAME, QUANTITY, {name: rates(flows) for name, flows in runs.items()}, {BARE: "bare"})
    simple = in_turns(bench, NAME, [simple_design()], 1, lambda one: one.flow(bench, load)).get(SIMPLE, [])
    for flow in simple:
        slow = slow_rate(flow.samples)
        ours = [rate / slow for rate in rates(runs.get("worker", []))]
        if ours:
            found.append(Figure(NAME, QUANTITY, "worker ÷ simple design", TIMES, tuple(ours), "simple"))
        found.append(Figure(NAME, QUANTITY, SIMPLE, "tasks/s", (slow,)))
    return [*found, *flow_figures(NAME, QUANTITY, runs)]
