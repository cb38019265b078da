"""The interface of the compared programs, the order in which they run, and the resulting figures."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from benchmarks.figures import TIMES, Figure, Sample, ratios, steady
from benchmarks.names import MEMORY, RECEIVED, WORKER
from benchmarks.runs import BacklogRun, TaskRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.bench import Bench
    from benchmarks.processes import ProcessGroup
    from benchmarks.runs import Load, Work

T = TypeVar("T")
LIMIT = 180.0  # seconds for one run
ROUND_TRIP_SECONDS = 60.0  # limit for round trips of a peer: some need seconds for one
_SAMPLE_SECONDS = 0.05
_MICRO, _MEGA = 1e6, 1e6


class Program(Protocol):
    """A program with its settings. Each call starts it at a new endpoint, and leaves no process running."""

    @property
    def name(self) -> str: ...

    def drain_backlog(self, bench: Bench, load: Load) -> BacklogRun:
        """Run it on waiting requests, and watch it."""

    def run_tasks(self, bench: Bench, work: Work) -> TaskRun:
        """Send tasks to the running program, and wait for all answers and commits."""

    def round_trips(self, bench: Bench, gaps: Sequence[float]) -> list[float]:
        """Send one empty task at a time, each after its gap. Return the seconds from sending to the answer.

        It makes as many round trips as there are gaps, or as fit into ``ROUND_TRIP_SECONDS``.
        """

    def start(self, bench: Bench) -> float:
        """Return the seconds from the start of its process to the start of its first task, with tasks waiting."""


def watch(group: ProcessGroup, settled: Callable[[], int], server_cpu: Callable[[], float], total: int) -> list[Sample]:
    """Sample a running program until that many tasks are settled. Raise TimeoutError after ``LIMIT`` seconds."""
    deadline = time.monotonic() + LIMIT
    samples = [Sample(time.perf_counter(), 0, group.cpu_seconds(), server_cpu())]
    while samples[-1].answers < total:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{samples[-1].answers} of {total} tasks settled in {LIMIT:.0f} s")
        time.sleep(_SAMPLE_SECONDS)
        group.check()
        count = settled()
        samples.append(Sample(time.perf_counter(), count, group.cpu_seconds(), server_cpu()))
    return samples


def interleave(
    bench: Bench, workload: str, programs: Sequence[Program], repetitions: int, measure: Callable[[Program], T]
) -> dict[str, list[T]]:
    """Measure all programs in turn, repetition by repetition. Report a failing one, and leave it out afterwards."""
    found: dict[str, list[T]] = {}
    failed: set[str] = set()
    for repetition, program in itertools.product(range(repetitions), programs):
        name = program.name
        if name in failed:
            continue
        begin, others = time.monotonic(), bench.other_cpu_seconds()
        try:
            result = measure(program)
        except Exception as error:  # noqa: BLE001 - reported, and the other programs may succeed
            failed.add(name)
            bench.report_failure(workload, name, error)
        else:
            found.setdefault(name, []).append(result)
            cores = (bench.other_cpu_seconds() - others) / (time.monotonic() - begin)
            done = f"{workload} {repetition + 1}/{repetitions}: {name}{_summary(result)}"
            bench.echo(f"{done}; other processes took {cores:.2f} cores")
    return found


def _summary(result: object) -> str:
    """Return a short description of a result."""
    match result:
        case BacklogRun() if len(result.samples) > 1:
            last = result.samples[-1]
            return f", {last.answers:,} in {last.at - result.samples[0].at:.1f} s, start-up included"
        case TaskRun():
            return f", {result.makespan:.2f} s"
        case float():
            return f", {result:.2f} s"
        case _:
            return ""


def backlog_figures(workload: str, quantity: str, runs: dict[str, list[BacklogRun]]) -> list[Figure]:
    """Return a figure for each program and column."""
    found = []
    for name, backlogs in runs.items():
        middles = [steady(run.samples, run.total) for run in backlogs]
        columns = {
            "tasks/s": [middle.per_second for middle in middles],
            "CPU µs/task": [middle.cpu_per_answer * _MICRO for middle in middles],
            "server's CPU µs/task": [middle.broker_cpu_per_answer * _MICRO for middle in middles],
            MEMORY: [run.pss / _MEGA for run in backlogs],
            "processes": [float(run.processes) for run in backlogs],
            "batches/1000 tasks": [run.batches for run in backlogs],
            "offsets/1000 tasks": [run.commits for run in backlogs],
            RECEIVED: [run.received for run in backlogs],
        }
        found += [
            Figure(workload, quantity, name, unit, tuple(values)) for unit, values in columns.items() if any(values)
        ]
    return found


def rates(backlogs: Sequence[BacklogRun]) -> list[float]:
    """Return the tasks per second in the middle of each run."""
    return [steady(run.samples, run.total).per_second for run in backlogs]


def ratios_of_worker(
    workload: str, quantity: str, values: Mapping[str, Sequence[float]], goals: dict[str, str]
) -> list[Figure]:
    """Return worker ÷ other program, run by run. ``goals`` has the goals of the design by the other's name."""
    ours = values.get(WORKER, ())
    return [
        Figure(workload, quantity, f"{WORKER} ÷ {name}", TIMES, ratios(ours, theirs), goals.get(name, ""))
        for name, theirs in values.items()
        if name != WORKER and ours
    ]
