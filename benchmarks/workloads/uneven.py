"""Uneven tasks: of very different lengths, or all in few places. How long until the last is done?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import durations
from benchmarks.broker import PARTITIONS
from benchmarks.contest import BOUND, Work, in_turns, versus
from benchmarks.figures import Figure, ratios
from benchmarks.programs import PROCESSES
from benchmarks.workloads.beside import everyone, with_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.bench import Bench
    from benchmarks.contest import Contestant

# A draw for each repetition, so that the luck of one dealing shows: the first two with a longest task between a quarter
# and half of all work. With a longer one every program would take as long as that task, with shorter ones the tail
# would not be heavy.
PARETO_SEEDS = (3, 20)
SEEDS = (1, 2)
KEYS, SKEWED_SECONDS = 100, 0.01
GREEDY = "makespan ÷ greedy list schedule"
SCHEDULE = "greedy list schedule"


def pareto(bench: Bench) -> list[Figure]:
    """Heavy-tailed lengths."""
    draws = [durations.worth(durations.pareto(seed), bench.scale.uneven_seconds) for seed in PARETO_SEEDS]
    works = [Work(lengths, short=False) for lengths in draws]
    return _compare(bench, "pareto", "heavy-tailed tasks", everyone(bench), works)


def bimodal(bench: Bench) -> list[Figure]:
    """One in a hundred is long."""
    draws = [durations.worth(durations.bimodal(seed), bench.scale.uneven_seconds) for seed in SEEDS]
    works = [Work(lengths, short=False) for lengths in draws]
    return _compare(bench, "bimodal", "99 % 5 ms, 1 % 5 s", everyone(bench), works)


def keyed(bench: Bench) -> list[Figure]:
    """Some keys are frequent, and so some partitions are. Order is kept for each key."""
    draws = [durations.zipf_keys(_skewed(bench), KEYS, seed) for seed in SEEDS]
    works = [
        Work([SKEWED_SECONDS] * len(keys), short=True, deal=durations.dealt(keys, PARTITIONS), by_key=True)
        for keys in draws
    ]
    return _compare(bench, "keyed", f"10 ms tasks, {KEYS} keys by Zipf", with_order(bench), works)


def one_partition(bench: Bench) -> list[Figure]:
    """All requests in one of four partitions, a key each."""
    work = Work([SKEWED_SECONDS] * _skewed(bench), short=True, deal=lambda number: (b"%d" % number, 0), by_key=True)
    return _compare(bench, "one-partition", "10 ms tasks in one partition", with_order(bench), [work] * len(SEEDS))


def _skewed(bench: Bench) -> int:
    return round(bench.scale.spin_seconds * PROCESSES / SKEWED_SECONDS)


def _compare(bench: Bench, name: str, quantity: str, who: Sequence[Contestant], works: Sequence[Work]) -> list[Figure]:
    """Makespans against what is possible, a repetition with each of the works.

    How long a task takes is given as CPU time, and the broker needs some as well, so 1 is out of reach.
    """
    turns: dict[str, Iterator[Work]] = {one.name: iter(works) for one in who}
    runs = in_turns(bench, name, who, len(works), lambda one: one.timed(bench, next(turns[one.name])))
    bounds = [durations.lower_bound(work.lengths, PROCESSES) for work in works]
    greedy = [durations.list_schedule(work.lengths, PROCESSES) for work in works]
    spans = {one: [timed.makespan for timed in runs[one]] for one in runs}
    found = versus(name, quantity, spans, {})
    for one, values in spans.items():
        found.append(Figure(name, quantity, one, BOUND, ratios(values, bounds)))
        found.append(Figure(name, quantity, one, GREEDY, ratios(values, greedy)))
    longest = [max(work.lengths) for work in works]
    return [
        *found,
        Figure(name, quantity, SCHEDULE, BOUND, ratios(greedy, bounds)),
        Figure(name, quantity, "lower bound", "s", tuple(bounds)),
        Figure(name, quantity, "longest task", "s", tuple(longest)),
        Figure(name, quantity, "all", "tasks", tuple(float(len(work.lengths)) for work in works)),
    ]


WORKLOADS = {"pareto": pareto, "bimodal": bimodal, "keyed": keyed, "one-partition": one_partition}
