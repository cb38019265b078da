"""Empty tasks: how many a second, and at what cost, beside a bare loop and the simple design."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.figures import TIMES, Figure, ratios, slow_rate, steady
from benchmarks.programs import PEERS, Program, peer, worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench
    from benchmarks.traffic import Place

NAME = "throughput"
SIMPLE_EVERY = 2  # repetitions: the simple design takes long and does not wander
LIMIT = 180.0  # seconds for one run
_MICRO = 1e6


class Run(NamedTuple):
    """One run. Of its middle, but for the last two, which are of all of it."""

    per_second: float
    cpu_micros: float  # of all processes of the program, per task
    broker_micros: float  # the broker's CPU, per task
    batches: float = 0.0  # record batches written, per 1000 answers
    commits: float = 0.0  # offsets committed, per 1000 answers


UNITS = ("tasks/s", "CPU µs/task", "broker CPU µs/task", "batches/1000 tasks", "offsets/1000 tasks")


def run(bench: Bench) -> list[Figure]:
    """Worker, bare loop, simple design, in turn."""
    programs: dict[str, Callable[[Place], Program]] = {
        "worker": lambda place: worker(place, "nothing"),
        PEERS["bare"]: lambda place: peer("bare", place),
    }
    runs: dict[str, list[Run]] = {name: [] for name in programs}
    simple: list[float] = []
    for repetition in range(bench.scale.repetitions):
        for name, program in programs.items():
            runs[name].append(one_run(bench, program))
            bench.say(f"{NAME} {repetition + 1}/{bench.scale.repetitions}: {name} {runs[name][-1].per_second:,.0f}/s")
        if repetition % SIMPLE_EVERY == 0:
            simple.append(_simple(bench))
            bench.say(f"{NAME} {repetition + 1}/{bench.scale.repetitions}: simple design {simple[-1]:.1f}/s")
    return [*_comparison(runs, simple), *(figure for name in runs for figure in figures(NAME, name, runs[name]))]


def one_run(bench: Bench, program: Callable[[Place], Program]) -> Run:
    """So many requests of the backlog, by one program."""
    place, total = bench.place(bench.backlog), bench.scale.empty_tasks
    offsets = bench.broker.records("__consumer_offsets")
    with program(place) as running:
        samples = bench.watch(running, place, total, LIMIT)
        middle = steady(samples, total)
    answers = bench.broker.records(place.ack_topic)
    if answers < total:
        raise RuntimeError(f"{running.name} committed {total} requests but answered {answers}")
    thousands = answers / 1000
    batches = bench.broker.batches(place.ack_topic)
    offsets = bench.broker.records("__consumer_offsets") - offsets
    bench.broker.delete(place.ack_topic)
    return Run(
        middle.per_second,
        middle.cpu_per_answer * _MICRO,
        middle.broker_cpu_per_answer * _MICRO,
        batches / thousands,
        offsets / thousands,
    )


def _simple(bench: Bench) -> float:
    place = bench.place(bench.backlog)
    with peer("simple", place) as running:
        return slow_rate(bench.watch(running, place, bench.scale.empty_tasks, bench.scale.simple_seconds))


def _comparison(runs: dict[str, list[Run]], simple: list[float]) -> list[Figure]:
    rates = {name: [run.per_second for run in runs[name]] for name in runs}
    bare, beside = PEERS["bare"], rates["worker"][::SIMPLE_EVERY]
    return [
        Figure(NAME, "empty tasks/s", "worker ÷ bare loop", TIMES, ratios(rates["worker"], rates[bare]), "bare"),
        Figure(NAME, "empty tasks/s", "worker ÷ simple design", TIMES, ratios(beside, simple), "simple"),
        Figure(NAME, "empty tasks", PEERS["simple"], UNITS[0], tuple(simple)),
    ]


def figures(workload: str, program: str, runs: list[Run]) -> list[Figure]:
    """A figure for each column."""
    columns = zip(*runs, strict=True)
    return [Figure(workload, "empty tasks", program, unit, column) for unit, column in zip(UNITS, columns, strict=True)]
