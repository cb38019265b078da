"""A worker process dies, or the broker restarts: how long until every partition is answered again?"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import signal
import time
from typing import TYPE_CHECKING

import confluent_kafka as ck

from benchmarks.bench import another_broker
from benchmarks.broker import PARTITIONS
from benchmarks.figures import Figure
from benchmarks.names import PROCESS, WORKER
from benchmarks.processes import worker
from benchmarks.traffic import Reader, produce, warm_up
from worker.codec import encode_request
from worker.core.model import Partition
from worker.kafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.bench import Bench
    from benchmarks.endpoint import Endpoint
    from benchmarks.processes import ProcessGroup

GAP = 0.02  # seconds between two requests
STEADY = 50  # requests before a crash
LIMIT = 120.0  # seconds
# In the default order, the partition of the crashed task waits for its next attempt, and thus for the back-off.
OVERTAKING = {"WORKER_ORDERING": "unordered"}
ISOLATION = {WORKER: "thread", PROCESS: "process"}
BROKER_RESTART = "broker-restart"
SEGFAULT = "segfault"  # payload, see ``handlers.crash``


class Stream:
    """A stream of empty tasks to all partitions in turn, with a record of the answered ones."""

    def __init__(self, endpoint: Endpoint, reader: Reader) -> None:
        self._endpoint = endpoint
        self._reader = reader
        self._open()
        self.sent = 0
        self.answered: set[int] = set()

    def _open(self) -> None:
        self._producer = ck.Producer({"bootstrap.servers": self._endpoint.address, "linger.ms": 0, "log_level": 0})

    @contextlib.contextmanager
    def disconnected(self) -> Iterator[None]:
        """Have no clients meanwhile. One that goes through a restart may never find the broker again."""
        self._producer.flush()
        with self._reader.disconnected():
            del self._producer
            yield
        self._open()

    def step(self, payload: str = "0") -> None:
        """Send one request, and receive answers until the next request is due."""
        value = encode_request(self.sent, payload)
        produce(self._producer, self._endpoint.request_topic, value, b"%d" % self.sent, self.sent % PARTITIONS)
        self._producer.poll(0)
        self.sent += 1
        due = time.monotonic() + GAP
        while (left := due - time.monotonic()) > 0:
            answer = self._reader.poll(left)
            if answer is not None:
                self.answered.add(answer.sequence)

    def progress(self, partitions: Iterable[int]) -> str:
        """Return how far the group is in these partitions. It tells a program that stands still from a lost answer."""
        cluster = Cluster({"bootstrap.servers": self._endpoint.address})
        places = [Partition(self._endpoint.request_topic, number) for number in partitions]
        ends, committed = cluster.spans(places), cluster.committed(self._endpoint.group, places)
        return ", ".join(f"partition {place.number} at {committed[place]} of {ends[place].end}" for place in places)


def run(kind: str, protocol: str, bench: Bench) -> list[Figure]:
    """Return the recovery time of each crash, in the worst partition, with threads and with child processes.

    An empty ``protocol`` means the worker's choice.
    """
    name, quantity = f"crash-{kind}", f"{EVENTS[kind]} to next answer"
    variables = dict(OVERTAKING)
    if protocol:
        name, quantity = f"{name}-{protocol}", f"{quantity}, {protocol} protocol"
        variables["KAFKA_GROUP_PROTOCOL"] = protocol
    values: dict[str, list[float]] = {program: [] for program in ISOLATION}
    with contextlib.ExitStack() as stack:
        where = bench
        if kind == BROKER_RESTART:  # another broker, so that the one of all workloads stays warm
            where = stack.enter_context(another_broker(bench))
        crash = functools.partial(KINDS[kind], where)
        for repetition, program in itertools.product(range(bench.scale.repetitions), ISOLATION):
            endpoint = where.endpoint()
            group = worker(endpoint, "crash", WORKER_ISOLATION=ISOLATION[program], **variables)
            with contextlib.closing(Reader(endpoint, group)) as reader, group:
                warm_up(endpoint, reader)
                stream = Stream(endpoint, reader)
                values[program] += [recovery(stream, crash, group) for _ in range(bench.scale.crashes)]
            bench.echo(f"{name} {repetition + 1}/{bench.scale.repetitions}: {program} {values[program][-1]:.2f} s")
    return [Figure(name, quantity, program, "s", tuple(found)) for program, found in values.items()]


def recovery(stream: Stream, crash: Callable[[Stream, ProcessGroup], None], group: ProcessGroup) -> float:
    """Return the seconds from the crash until each partition has answered a request that was sent after it.

    For a restart of the broker they count from the time when it is ready again.
    """
    for _ in range(STEADY):
        stream.step()
    crash(stream, group)
    begin, first = time.monotonic(), stream.sent
    while waiting := unanswered(stream.answered, first):
        if time.monotonic() - begin > LIMIT:
            progress = stream.progress(waiting)
            raise TimeoutError(f"no answer {LIMIT:g} s after the crash: {progress}; {group.last_output()}")
        stream.step()
    return time.monotonic() - begin


def unanswered(answered: set[int], first: int) -> list[int]:
    """Return the partitions in which no request with this sequence or a later one is answered."""
    return sorted(set(range(PARTITIONS)) - {sequence % PARTITIONS for sequence in answered if sequence >= first})


def _kill(_bench: Bench, _stream: Stream, group: ProcessGroup) -> None:
    os.kill(random.choice(sorted(group.memory())), signal.SIGKILL)


def _segfault(_bench: Bench, stream: Stream, _group: ProcessGroup) -> None:
    stream.step(SEGFAULT)


def _restart_broker(bench: Bench, stream: Stream, _group: ProcessGroup) -> None:
    with stream.disconnected():
        bench.broker.restart()


EVENTS = {
    "SIGKILL": "SIGKILL of a worker process: crash",
    "segfault": "segmentation fault in a task: crash",
    BROKER_RESTART: "restart of the broker: ready",
}
KINDS: dict[str, Callable[[Bench, Stream, ProcessGroup], None]] = {
    "SIGKILL": _kill,
    "segfault": _segfault,
    BROKER_RESTART: _restart_broker,
}
WORKLOADS: dict[str, Callable[[Bench], list[Figure]]] = {
    f"crash-{kind}{suffix}": functools.partial(run, kind, suffix.removeprefix("-"))
    for suffix in ("", "-classic")
    for kind in KINDS
}
