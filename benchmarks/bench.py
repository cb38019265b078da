"""What every workload is given: the broker, fresh places to work in, and how much there is to do."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.figures import Sample
from benchmarks.traffic import Place, Settled, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.broker import Broker
    from benchmarks.programs import Program

_SAMPLE_SECONDS = 0.05


class Scale(NamedTuple):
    """How much each workload does."""

    repetitions: int
    empty_tasks: int  # of the backlog, which has more, so that no process ever runs out of them
    simple_seconds: float  # of the simple design, which would take hours for the same number
    spin_seconds: float  # of tasks for each process, in each of the three sizes
    round_trips: int  # in each repetition
    backlog_seconds: float  # to look at the memory
    starts: int


QUICK = Scale(2, 200_000, 4, 3, 250, 3, 2)
FULL = Scale(5, 600_000, 10, 8, 400, 12, 5)
BACKLOG = 1_000_000
BACKLOG_TASK = "0.1"  # what ``handlers.spin`` makes of a request of the backlog: seconds


class Bench:
    """The broker, the scale, and names that nobody has used before. ``say`` shows a line of progress."""

    def __init__(self, broker: Broker, scale: Scale, say: Callable[[str], None]) -> None:
        self.broker = broker
        self.scale = scale
        self.say = say
        self._numbers = itertools.count(1)

    def topic(self, kind: str) -> str:
        """A new, empty topic."""
        name = f"{kind}-{next(self._numbers)}"
        self.broker.create(name)
        return name

    def place(self, request_topic: str | None = None) -> Place:
        """A new group and a new ack topic, and a new request topic unless one is given."""
        group = f"group-{next(self._numbers)}"
        return Place(self.broker.address, request_topic or self.topic("requests"), self.topic("answers"), group)

    @functools.cached_property
    def backlog(self) -> str:
        """A topic with a million requests, for all: reading takes nothing out."""
        topic, begin = self.topic("requests"), time.perf_counter()
        self.fill(topic, itertools.repeat(BACKLOG_TASK, BACKLOG))
        self.say(f"{BACKLOG:,} requests produced in {time.perf_counter() - begin:.1f} s")
        return topic

    def fill(self, topic: str, payloads: Iterable[str]) -> None:
        """Produce requests."""
        fill(self.broker.address, topic, payloads)

    def watch(self, program: Program, place: Place, total: int, seconds: float) -> list[Sample]:
        """Look at a running program until ``total`` requests are settled (answered and committed) or time is up."""
        deadline = time.monotonic() + seconds
        samples = [Sample(time.perf_counter(), 0)]
        with contextlib.closing(Settled(place)) as settled:
            while samples[-1].answers < total and time.monotonic() < deadline:
                time.sleep(_SAMPLE_SECONDS)
                program.check()
                count = settled.count()
                samples.append(Sample(time.perf_counter(), count, program.cpu_seconds(), self.broker.cpu_seconds()))
        return samples
