"""Uneven tasks: with very different lengths, or concentrated in few partitions. When is the last one done?"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks import durations
from benchmarks.broker import PARTITIONS
from benchmarks.comparison import interleave, ratios_of_worker
from benchmarks.figures import Figure, ratios
from benchmarks.kafka_programs import detaching
from benchmarks.names import BOTH, BOUND, SHORT_WAIT, VARIANTS
from benchmarks.processes import PROCESSES
from benchmarks.runs import Work
from benchmarks.workloads.peers import all_programs, ordered_programs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.bench import Bench
    from benchmarks.comparison import Program
    from benchmarks.figures import Span

# A draw for each repetition, so that no result depends on one distribution of the tasks: the first six whose longest
# task is between half of a process's share of all work and that share. With a longer one, every program takes as long
# as that task. With shorter ones, the tail is not heavy.
PARETO_SEEDS = {2: (3, 14, 18, 20, 30, 33), 4: (33, 34, 43, 44, 45, 48)}  # by the number of processes
SEEDS = (1, 2, 3, 4, 5, 6)
PARETO, PARETO_OF_FOUR, BIMODAL, BIMODAL_OF_FOUR = "pareto", "pareto-4", "bimodal", "bimodal-4"  # workloads
FOUR = 4  # processes
# While a long task runs, the process runs its other requests, too, in another child process.
SLOTS = {"WORKER_ISOLATION": "process", "WORKER_EXTRA_SLOTS": "1"}
KEYS, SKEWED_SECONDS = 100, 0.01
GREEDY = "makespan ÷ greedy list schedule"
SCHEDULE = "greedy list schedule"
SHORT_SECONDS = 1.0  # a task of less is short; the detaching worker treats others as long


def pareto(bench: Bench) -> list[Figure]:
    """Measure heavy-tailed lengths."""
    return _compare(bench, PARETO, "heavy-tailed tasks", _unordered_programs(bench), _heavy_tailed(bench, PROCESSES))


def pareto_of_four(bench: Bench) -> list[Figure]:
    """Measure heavy-tailed lengths in four processes."""
    quantity, works = f"heavy-tailed tasks, {FOUR} processes", _heavy_tailed(bench, FOUR)
    return _compare(bench, PARETO_OF_FOUR, quantity, _unordered_programs(bench), works)


def bimodal(bench: Bench) -> list[Figure]:
    """Measure tasks of which one in a hundred is long."""
    return _compare(bench, BIMODAL, "99 % 5 ms, 1 % 5 s", _unordered_programs(bench), _bimodal(bench, PROCESSES))


def bimodal_of_four(bench: Bench) -> list[Figure]:
    """Measure tasks of which one in a hundred is long, in four processes."""
    quantity, works = f"99 % 5 ms, 1 % 5 s, {FOUR} processes", _bimodal(bench, FOUR)
    return _compare(bench, BIMODAL_OF_FOUR, quantity, _unordered_programs(bench), works)


def _heavy_tailed(bench: Bench, processes: int) -> list[Work]:
    seeds = PARETO_SEEDS[processes][: bench.scale.repetitions]
    return [_work(bench, durations.pareto(seed), processes) for seed in seeds]


def _bimodal(bench: Bench, processes: int) -> list[Work]:
    return [_work(bench, durations.bimodal(seed), processes) for seed in SEEDS[: bench.scale.repetitions]]


def _work(bench: Bench, lengths: Iterable[float], processes: int) -> Work:
    """Return tasks for this number of processes. They wait instead of computing if there are fewer cores."""
    seconds = bench.scale.uneven_seconds * processes / PROCESSES
    handler = "spin" if processes == PROCESSES else "rest"
    return Work(durations.take_seconds(lengths, seconds), short=False, handler=handler, processes=processes)


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
    return [ours, detaching(bench), detaching(bench, BOTH, **SLOTS), *peers]


def _skewed(bench: Bench) -> int:
    return round(bench.scale.spin_seconds * PROCESSES / SKEWED_SECONDS)


def _compare(bench: Bench, name: str, quantity: str, who: Sequence[Program], works: Sequence[Work]) -> list[Figure]:
    """Compare makespans with the lower bound, one repetition for each work.

    Lengths are CPU times, and the broker also needs CPU time, so a ratio of 1 is out of reach.
    """
    turns: dict[str, Iterator[Work]] = {one.name: iter(works) for one in who}
    runs = interleave(bench, name, who, len(works), lambda one: one.run_tasks(bench, next(turns[one.name])))
    bounds = [durations.lower_bound(work.lengths, work.processes) for work in works]
    greedy = [durations.list_schedule(work.lengths, work.processes) for work in works]
    spans = {one: [run.makespan for run in runs[one]] for one in runs}
    others = {one: values for one, values in spans.items() if one not in VARIANTS}
    found = ratios_of_worker(name, quantity, others, {})
    for one, values in spans.items():
        found.append(Figure(name, quantity, one, BOUND, ratios(values, bounds)))
        found.append(Figure(name, quantity, one, GREEDY, ratios(values, greedy), name if one == BOTH else ""))
    longest = [max(work.lengths) for work in works]
    if not works[0].by_key:
        found += [
            Figure(name, f"{quantity}, {SHORT_WAIT}", one, "s", tuple(mean_wait(run.spans) for run in several))
            for one, several in runs.items()
        ]
    return [
        *found,
        Figure(name, quantity, SCHEDULE, BOUND, ratios(greedy, bounds)),
        Figure(name, quantity, "lower bound", "s", tuple(bounds)),
        Figure(name, quantity, "longest task", "s", tuple(longest)),
        Figure(name, quantity, "all", "tasks", tuple(float(len(work.lengths)) for work in works)),
    ]


def mean_wait(spans: Sequence[Span]) -> float:
    """Return the mean seconds from the first start of any task to the start of each short one."""
    begin = min(span.started for span in spans)
    return statistics.fmean(span.started - begin for span in spans if span.finished - span.started < SHORT_SECONDS)


WORKLOADS = {
    PARETO: pareto,
    PARETO_OF_FOUR: pareto_of_four,
    BIMODAL: bimodal,
    BIMODAL_OF_FOUR: bimodal_of_four,
    "keyed": keyed,
    "one-partition": one_partition,
}
