"""What every workload is given: the broker, fresh places to work in, and how much there is to do."""

from __future__ import annotations

import contextlib
import functools
import itertools
import resource
import time
from typing import TYPE_CHECKING, NamedTuple, Self

import psutil

from benchmarks.contest import Load
from benchmarks.environments import Environments
from benchmarks.redis_server import RedisServer
from benchmarks.report import Trouble
from benchmarks.traffic import Place, fill, in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.broker import Broker
    from benchmarks.traffic import Deal


class Scale(NamedTuple):
    """How much each workload does."""

    repetitions: int
    of_peers: int  # repetitions of a workload that all peers take part in
    backlog: int  # empty tasks that wait
    empty_tasks: int  # of those, fewer, so that no process ever runs out of them
    spin_seconds: float  # of tasks for each process, in each of the sizes
    uneven_seconds: float  # of all tasks together, where their lengths differ
    payloads: int  # requests of 100 B, fewer of the larger ones
    round_trips: int  # in each repetition
    backlog_seconds: float  # to look at the memory
    starts: int
    everywhere: bool  # peers take part in all workloads, not only in that of empty tasks
    fetch: bool  # peers that are not there yet


QUICK = Scale(1, 1, 300_000, 120_000, 1.5, 4, 20_000, 100, 2, 2, everywhere=False, fetch=False)
FULL = Scale(4, 2, 1_000_000, 600_000, 5, 16, 100_000, 400, 8, 3, everywhere=True, fetch=True)
BACKLOG_TASK = "0.1"  # what ``handlers.spin`` makes of a request of the backlog: seconds


class Bench:
    """The broker, the scale, and names that nobody has used before. ``say`` shows a line of progress.

    Use it as a context: whatever it started for the workloads ends with it.
    """

    def __init__(self, broker: Broker, scale: Scale, say: Callable[[str], None]) -> None:
        self.broker = broker
        self.scale = scale
        self.say = say
        self.troubles: list[Trouble] = []
        self.environments = Environments(fetch=scale.fetch)
        self._numbers = itertools.count(1)
        self._waiting: dict[Load, str] = {}
        self._started = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    @functools.cached_property
    def redis(self) -> RedisServer:
        """One server for all, started when it is first asked for."""
        return self._started.enter_context(RedisServer(self.environments))

    def others(self) -> float:
        """CPU seconds that the machine has spent on anything but this suite; only a difference of two looks tells.

        Programs count as the suite's once they have ended, so look when none runs.
        """
        spent = psutil.cpu_times()
        used = spent.user + spent.nice + spent.system + spent.irq + spent.softirq + spent.steal
        for whom in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            own = resource.getrusage(whom)
            used -= own.ru_utime + own.ru_stime
        redis = self.redis.cpu_seconds() if "redis" in self.__dict__ else 0.0
        return used - self.broker.cpu_seconds() - redis

    def trouble(self, workload: str, program: str, error: Exception) -> None:
        """Remember why something has no figures."""
        self.troubles.append(Trouble(workload, program, error))
        self.say(f"not measured: {self.troubles[-1]}")

    def topic(self, kind: str) -> str:
        """A new, empty topic."""
        name = f"{kind}-{next(self._numbers)}"
        self.broker.create(name)
        return name

    def place(self, request_topic: str | None = None) -> Place:
        """A new group and a new ack topic, and a new request topic unless one is given."""
        group = f"group-{next(self._numbers)}"
        return Place(self.broker.address, request_topic or self.topic("requests"), self.topic("answers"), group)

    @property
    def backlog(self) -> str:
        """The topic with the requests of the backlog."""
        return self.waiting(self.load)

    @property
    def load(self) -> Load:
        """The backlog, as what waits before a program starts."""
        return Load(BACKLOG_TASK, self.scale.backlog)

    def waiting(self, load: Load) -> str:
        """A topic with these requests, for all: reading takes nothing out."""
        if load not in self._waiting:
            topic, begin = self.topic("requests"), time.perf_counter()
            self.fill(topic, itertools.repeat(load.payload, load.waiting))
            self.say(f"{load.waiting:,} requests produced in {time.perf_counter() - begin:.1f} s")
            self._waiting[load] = topic
        return self._waiting[load]

    def fill(self, topic: str, payloads: Iterable[str], deal: Deal = in_turn) -> None:
        """Produce requests."""
        fill(self.broker.address, topic, payloads, deal)
