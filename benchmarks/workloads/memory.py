"""Memory of a worker process: idle, and while a million requests wait for short and for long tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.figures import Figure
from benchmarks.programs import Memory, Program, worker
from benchmarks.traffic import Place, Reader, warm_up

if TYPE_CHECKING:
    from benchmarks.bench import Bench

NAME = "memory"
IDLE_SECONDS = 2.0
LOOK_SECONDS = 0.5  # a look costs milliseconds in the kernel
_MEGA = 1e6


def run(bench: Bench) -> list[Figure]:
    """Idle; a backlog for an empty handler; the same backlog for tasks of 100 ms."""
    idle, cpu = _idle(bench)
    bench.say(f"{NAME}: idle {_greatest(idle):.1f} MB per process")
    short = _backlog(bench, "nothing")
    bench.say(f"{NAME}: backlog, empty tasks {_greatest(short):.1f} MB per process at most")
    long = _backlog(bench, "spin")
    bench.say(f"{NAME}: backlog, tasks of 100 ms {_greatest(long):.1f} MB per process at most")
    return [
        *_figures("idle", idle, goal="memory idle"),
        *_figures("backlog, empty tasks", short, goal="memory backlog"),
        *_figures("backlog, 100 ms tasks", long),
        Figure(NAME, "backlog, empty tasks", "worker", "MB growth of PSS", (_growth(short),), "flat"),
        Figure(NAME, "idle", "worker", "% of a core, all processes", (cpu,)),
    ]


def _idle(bench: Bench) -> tuple[list[dict[int, Memory]], float]:
    """Looks at an idle worker, and what it takes of a core, in percent."""
    place = bench.place()
    with worker(place, "nothing") as running:
        looks = _looks(place, running, IDLE_SECONDS, warm=True)
        cpu, begin = running.cpu_seconds(), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        return looks, 100 * (running.cpu_seconds() - cpu) / (time.perf_counter() - begin)


def _backlog(bench: Bench, handler: str) -> list[dict[int, Memory]]:
    place = bench.place(bench.backlog)
    with worker(place, handler) as running:
        return _looks(place, running, bench.scale.backlog_seconds, warm=False)


def _looks(place: Place, program: Program, seconds: float, *, warm: bool) -> list[dict[int, Memory]]:
    """Memory of each process, again and again, from the first answer on."""
    reader = Reader(place, program)
    if warm:
        warm_up(place, reader)
    else:
        reader.next()
    reader.close()
    looks = []
    for _ in range(int(seconds / LOOK_SECONDS)):
        time.sleep(LOOK_SECONDS)
        program.check()
        looks.append(program.memory())
    if any(look.keys() != looks[0].keys() for look in looks):
        raise RuntimeError(f"processes came and went; the end of the log:\n{program.last_words(20)}")
    return looks


def _greatest(looks: list[dict[int, Memory]]) -> float:
    return max(memory.pss for look in looks for memory in look.values()) / _MEGA


def _growth(looks: list[dict[int, Memory]]) -> float:
    """The greatest of the second half over the greatest of the first, of the process that grew most."""
    first, second = looks[: len(looks) // 2], looks[len(looks) // 2 :]
    return max(max(look[pid].pss for look in second) - max(look[pid].pss for look in first) for pid in looks[0]) / _MEGA


def _figures(quantity: str, looks: list[dict[int, Memory]], goal: str = "") -> list[Figure]:
    """A value per process: its greatest."""
    processes = [[look[pid] for look in looks] for pid in looks[-1]]
    pss = tuple(max(memory.pss for memory in process) / _MEGA for process in processes)
    rss = tuple(max(memory.rss for memory in process) / _MEGA for process in processes)
    return [
        Figure(NAME, quantity, "worker", "MB PSS per process", pss, goal),
        Figure(NAME, quantity, "worker", "MB RSS per process", rss),
    ]
