"""Uneven tasks: with very different lengths, or concentrated in few partitions. When is the last one done?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import durations
from benchmarks.broker import PARTITIONS
from benchmarks.comparison import interleave, ratios_of_worker
from benchmarks.figures import Figure, ratios
from benchmarks.kafka_programs import detaching
from benchmarks.names import BOUND, DETACHING
from benchmarks.processes import PROCESSES
from benchmarks.runs import Work
from benchmarks.workloads.peers import all_programs, ordered_programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.bench import Bench
    from benchmarks.comparison import Program

# A draw for each repetition, so that no result depends on one distribution of the tasks: the first six whose longest
# task is between a quarter and half of all work. With a longer one, every program takes as long as that task. With
# shorter ones, the tail is not heavy.
PARETO_SEEDS = (3, 14, 18, 20, 30, 33)
SEEDS = (1, 2, 3, 4, 5, 6)
KEYS, SKEWED_SECONDS = 100, 0.01
GREEDY = "makespan ÷ greedy list schedule"
SCHEDULE = "greedy list schedule"


def pareto(bench: Bench) -> list[Figure]:
    """Measure heavy-tailed lengths."""
    draws = [
        durations.take_seconds(durations.pareto(seed), bench.scale.uneven_seconds)
        for seed in PARETO_SEEDS[: bench.scale.repetitions]
    ]
    works = [Work(durations.take_seconds(lengths, bench.scale.uneven_seconds), short=False) for lengths in draws]
    return _compare(bench, "pareto", "heavy-tailed tasks", _unordered_programs(bench), works)


def bimodal(bench: Bench) -> list[Figure]:
    """Measure tasks of which one in a hundred is long."""
    draws = [
        durations.take_seconds(durations.bimodal(seed), bench.scale.uneven_seconds)
        for seed in SEEDS[: bench.scale.repetitions]
    ]
    works = [Work(durations.take_seconds(lengths, bench.scale.uneven_seconds), short=False) for lengths in draws]
    return _compare(bench, "bimodal", "99 % 5 ms, 1 % 5 s", _unordered_programs(bench), works)


def keyed(bench: Bench) -> list[Figure]:
    """Measure frequent keys, and thus frequent partitions. The order of each key is kept."""
    draws = [durations.zipf_keys(_skewed(bench), KEYS, seed) for seed in SEEDS[: bench.scale.repetitions]]
    works = [
        Work([SKEWED_SECONDS] * len(keys), short=True, partitioner=durations.by_key(keys, PARTITIONS), by_key=True)
        for keys in draws
    ]
    return _compare(bench, "keyed", f"10 ms tasks, {KEYS} keys by Zipf", ordered_programs(bench), works)


def one_partition(bench: Bench) -> list[Figure]:
    """Measure requests with different keys, all in one of four partitions."""
    lengths = [SKEWED_SECONDS] * _skewed(bench)
    work = Work(lengths, short=True, partitioner=lambda number: (b"%d" % number, 0), by_key=True)
    works = [work] * bench.scale.repetitions
    return _compare(bench, "one-partition", "10 ms tasks in one partition", ordered_programs(bench), works)


def _unordered_programs(bench: Bench) -> list[Program]:
    """Return the worker with defaults and with the settings for such tasks, and the peers, which keep no order."""
    ours, *peers = all_programs(bench)
    return [ours, detaching(bench, 0), *peers]


def _skewed(bench: Bench) -> int:
    return round(bench.scale.spin_seconds * PROCESSES / SKEWED_SECONDS)


def _compare(bench: Bench, name: str, quantity: str, who: Sequence[Program], works: Sequence[Work]) -> list[Figure]:
    """Compare makespans with the lower bound, one repetition for each work.

    Lengths are CPU times, and the broker also needs CPU time, so a ratio of 1 is out of reach.
    """
    turns: dict[str, Iterator[Work]] = {one.name: iter(works) for one in who}
    runs = interleave(bench, name, who, len(works), lambda one: one.run_tasks(bench, next(turns[one.name])))
    bounds = [durations.lower_bound(work.lengths, PROCESSES) for work in works]
    greedy = [durations.list_schedule(work.lengths, PROCESSES) for work in works]
    spans = {one: [run.makespan for run in runs[one]] for one in runs}
    found = ratios_of_worker(name, quantity, {one: values for one, values in spans.items() if one != DETACHING}, {})
    for one, values in spans.items():
        found.append(Figure(name, quantity, one, BOUND, ratios(values, bounds)))
        found.append(Figure(name, quantity, one, GREEDY, ratios(values, greedy), name if one == DETACHING else ""))
    longest = [max(work.lengths) for work in works]
    return [
        *found,
        Figure(name, quantity, SCHEDULE, BOUND, ratios(greedy, bounds)),
        Figure(name, quantity, "lower bound", "s", tuple(bounds)),
        Figure(name, quantity, "longest task", "s", tuple(longest)),
        Figure(name, quantity, "all", "tasks", tuple(float(len(work.lengths)) for work in works)),
    ]


WORKLOADS = {"pareto": pareto, "bimodal": bimodal, "keyed": keyed, "one-partition": one_partition}
