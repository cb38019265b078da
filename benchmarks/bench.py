"""The common resources of the workloads: the broker, new endpoints, and the amount of work."""

from __future__ import annotations

import contextlib
import functools
import itertools
import resource
import time
from typing import TYPE_CHECKING, NamedTuple, Self

import psutil

from benchmarks.broker import PARTITIONS, Broker
from benchmarks.endpoint import Endpoint, round_robin
from benchmarks.environments import Environments
from benchmarks.failure import Failure
from benchmarks.rabbit_server import RabbitServer
from benchmarks.redis_server import RedisServer
from benchmarks.runs import Load
from benchmarks.traffic import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from benchmarks.endpoint import Partitioner
    from benchmarks.other_engine import OtherEngine


class Scale(NamedTuple):
    """The amount of work of each workload."""

    repetitions: int
    backlog: int  # empty tasks that wait at the start
    empty_tasks: int  # part of the backlog that is counted, so that no process ever runs out of tasks
    spin_seconds: float  # seconds of tasks for each process, in each of the sizes
    uneven_seconds: float  # seconds of all tasks together, if their lengths differ
    payloads: int  # requests of 100 B; fewer of the larger ones
    round_trips: int  # in each repetition
    backlog_seconds: float  # seconds in which the memory is watched
    long_task: float  # seconds of the long task before the short ones
    crashes: int  # of each kind, in each repetition
    peers: bool  # whether peers take part in all workloads instead of only that of empty tasks
    fetch: bool  # whether missing peers may be downloaded


QUICK = Scale(1, 300_000, 120_000, 1.5, 4, 20_000, 100, 2, 3, 1, peers=False, fetch=False)
# Six repetitions are the fewest whose minimum and maximum enclose the median with 95 % confidence.
FULL = Scale(6, 1_000_000, 600_000, 5, 16, 100_000, 1_000, 8, 20, 2, peers=True, fetch=True)
# For the headline ratios: as many repetitions, less work in each, and only the peer that has a goal.
HEADLINE = FULL._replace(backlog=400_000, empty_tasks=300_000, spin_seconds=4, round_trips=200, peers=False)
BACKLOG_TASK = "0.1"  # the payload of the backlog: seconds for ``handlers.spin``


class Bench:
    """The broker, the scale, and unused names. ``echo`` prints a line of progress.

    Use it as a context manager. It ends everything that it started for the workloads.
    """

    def __init__(
        self, broker: Broker, scale: Scale, echo: Callable[[str], None], other_engine: OtherEngine | None = None
    ) -> None:
        self.broker = broker
        self.scale = scale
        self.echo = echo
        self.other_engine = other_engine
        self.failures: list[Failure] = []
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
        """Return the Redis server of all workloads, started on first use."""
        return self._started.enter_context(RedisServer(self.environments))

    @functools.cached_property
    def rabbit(self) -> RabbitServer:
        """Return the RabbitMQ server of all workloads, started on first use."""
        return self._started.enter_context(RabbitServer(self.environments))

    def other_cpu_seconds(self) -> float:
        """Return the CPU seconds of all processes outside this suite. Only differences of two calls are meaningful.

        Programs count as the suite's only after their end, so call it while none runs.
        """
        spent = psutil.cpu_times()
        used = spent.user + spent.nice + spent.system + spent.irq + spent.softirq + spent.steal
        for whom in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            ours = resource.getrusage(whom)
            used -= ours.ru_utime + ours.ru_stime
        servers: list[float] = [
            self.__dict__[name].cpu_seconds() for name in ("redis", "rabbit") if name in self.__dict__
        ]
        return used - self.broker.cpu_seconds() - sum(servers)

    def report_failure(self, workload: str, program: str, error: Exception) -> None:
        """Keep the reason why a program or workload has no figures."""
        self.failures.append(Failure(workload, program, error))
        self.echo(f"not measured: {self.failures[-1]}")

    def topic(self, kind: str, partitions: int = PARTITIONS) -> str:
        """Return a new, empty topic."""
        name = f"{kind}-{next(self._numbers)}"
        self.broker.create(name, partitions)
        return name

    def state_topic(self) -> str:
        """Return a new, empty topic for the states of long tasks."""
        name = f"states-{next(self._numbers)}"
        self.broker.create(name, 1, {"cleanup.policy": "compact"})
        return name

    def endpoint(self, request_topic: str | None = None, partitions: int = PARTITIONS) -> Endpoint:
        """Return an endpoint with a new group, a new ack topic and, unless one is given, a new request topic."""
        group = f"group-{next(self._numbers)}"
        requests = request_topic or self.topic("requests", partitions)
        return Endpoint(self.broker.address, requests, self.topic("answers"), group, partitions)

    @property
    def backlog(self) -> str:
        """Return the topic with the requests of the backlog."""
        return self.waiting(self.load)

    @property
    def load(self) -> Load:
        """Return the requests of the backlog."""
        return Load(BACKLOG_TASK, self.scale.backlog)

    def waiting(self, load: Load) -> str:
        """Return a topic with these requests, shared by all programs."""
        if load not in self._waiting:
            topic, begin = self.topic("requests"), time.perf_counter()
            self.fill(topic, itertools.repeat(load.payload, load.waiting))
            self.echo(f"{load.waiting:,} requests produced in {time.perf_counter() - begin:.1f} s")
            self._waiting[load] = topic
        return self._waiting[load]

    def fill(self, topic: str, payloads: Iterable[str], partitioner: Partitioner = round_robin) -> None:
        """Produce requests."""
        fill(self.broker.address, topic, payloads, partitioner)


@contextlib.contextmanager
def another_broker(bench: Bench, properties: Mapping[str, str] | None = None) -> Iterator[Bench]:
    """Yield a bench with another broker. Its failures are reported to the given bench, too."""
    with Broker(properties) as broker, Bench(broker, bench.scale, bench.echo, bench.other_engine) as other:
        yield other
        bench.failures += other.failures
