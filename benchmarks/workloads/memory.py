"""Memory of a worker process: idle, and while a million requests wait for short and long tasks."""

from __future__ import annotations

import time
from operator import attrgetter
from typing import TYPE_CHECKING

from benchmarks.figures import Figure
from benchmarks.processes import worker
from benchmarks.traffic import Reader, warm_up

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.endpoint import Endpoint
    from benchmarks.processes import Memory, ProcessGroup

    Sample = dict[int, Memory]  # of each process, by its pid

NAME = "memory"
IDLE_SECONDS = 2.0
SAMPLE_SECONDS = 0.5  # a sample costs the kernel milliseconds
_MEGA = 1e6
_PSS, _RSS = attrgetter("pss"), attrgetter("rss")


def run(bench: Bench) -> list[Figure]:
    """Measure an idle worker, a backlog for an empty handler, and the same backlog for tasks of 100 ms, in turn."""
    idle, short, long, cpu = [], [], [], []
    for repetition in range(bench.scale.repetitions):
        samples, percent = _idle(bench)
        idle.append(samples)
        cpu.append(percent)
        short.append(_backlog(bench, "nothing"))
        long.append(_backlog(bench, "spin"))
        greatest = " / ".join(f"{_greatest(measured, _PSS)[-1]:.1f}" for measured in (idle, short, long))
        bench.echo(f"{NAME} {repetition + 1}/{bench.scale.repetitions}: {greatest} MB per process at most")
    return [
        *_figures("idle", idle, goal="memory idle"),
        *_figures("backlog, empty tasks", short, goal="memory backlog"),
        *_figures("backlog, 100 ms tasks", long),
        Figure(NAME, "backlog, empty tasks", "worker", "MB growth of PSS", tuple(map(_growth, short)), "flat"),
        Figure(NAME, "idle", "worker", "% of a core, all processes", tuple(cpu)),
    ]


def _idle(bench: Bench) -> tuple[list[Sample], float]:
    """Return samples of an idle worker, and the percentage of a core that it uses."""
    endpoint = bench.endpoint()
    with worker(endpoint, "nothing") as running:
        samples = _sample(endpoint, running, IDLE_SECONDS, warm=True)
        cpu, begin = running.cpu_seconds(), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        return samples, 100 * (running.cpu_seconds() - cpu) / (time.perf_counter() - begin)


def _backlog(bench: Bench, handler: str) -> list[Sample]:
    endpoint = bench.endpoint(bench.backlog)
    with worker(endpoint, handler) as running:
        return _sample(endpoint, running, bench.scale.backlog_seconds, warm=False)


def _sample(endpoint: Endpoint, program: ProcessGroup, seconds: float, *, warm: bool) -> list[Sample]:
    """Sample the memory of each process, from the first answer on."""
    reader = Reader(endpoint, program)
    if warm:
        warm_up(endpoint, reader)
    else:
        reader.next()
    reader.close()
    samples = []
    for _ in range(int(seconds / SAMPLE_SECONDS)):
        time.sleep(SAMPLE_SECONDS)
        program.check()
        samples.append(program.memory())
    if any(sample.keys() != samples[0].keys() for sample in samples):
        raise RuntimeError(f"processes came and went; the end of the log:\n{program.last_output(20)}")
    return samples


def _growth(samples: list[Sample]) -> float:
    """Return the maximum of the second half minus that of the first half, for the process that grew most."""
    first, second = samples[: len(samples) // 2], samples[len(samples) // 2 :]
    return (
        max(max(sample[pid].pss for sample in second) - max(sample[pid].pss for sample in first) for pid in samples[0])
        / _MEGA
    )


def _figures(quantity: str, repetitions: list[list[Sample]], goal: str = "") -> list[Figure]:
    """Return figures with one value per repetition: the most that any process had in any sample."""
    return [
        Figure(NAME, quantity, "worker", "MB PSS per process", _greatest(repetitions, _PSS), goal),
        Figure(NAME, quantity, "worker", "MB RSS per process", _greatest(repetitions, _RSS)),
    ]


def _greatest(repetitions: list[list[Sample]], kind: attrgetter[int]) -> tuple[float, ...]:
    """Return the most megabytes of this kind in each repetition."""
    return tuple(
        max(kind(memory) for sample in samples for memory in sample.values()) / _MEGA for samples in repetitions
    )
