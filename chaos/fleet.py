"""The replicas of a run: started, watched, and started again when they end by themselves, as an orchestrator would."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil

from chaos import load, own
from chaos.cluster import LANES, until
from chaos.own import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from chaos.cluster import Cluster, Topics
    from chaos.plan import Options

STOP_SECONDS = 120.0  # from SIGTERM on: the last answers and commits alone may take a minute
READY_SECONDS = 120.0
LAST_LINES = 12
_AGAIN = 0.5  # seconds until a replica that has ended is started again
ELSEWHERE = {"PYTHONPATH": f"{ROOT}/chaos/elsewhere:{ROOT}"}
NOTHING: Mapping[str, str] = {}
SMALL_QUEUE = {"KAFKA_CONFIG_QUEUE_BUFFERING_MAX_MESSAGES": "3"}


class Ended(NamedTuple):
    """A replica that ended: ``asked`` by one SIGTERM between ``begin`` and ``end``."""

    name: str
    code: int
    asked: bool
    begin: float
    end: float


class Replica:
    """A ``worker run``."""

    def __init__(self, name: str, environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.lock = asyncio.Lock()  # held by what must not be disturbed while it deals with this replica
        self.process = own.start([sys.executable, "-P", "-m", "worker", "run"], environment, log)

    @property
    def running(self) -> bool:
        """Whether its supervisor is there."""
        return self.process.poll() is None

    @property
    def up(self) -> bool:
        """Whether its supervisor has begun to supervise."""
        return any(True for _ in self.lines('"supervisor.started"'))

    def workers(self) -> list[psutil.Process]:
        """Its worker processes, the oldest first; not the one that only looks at the broker before."""
        started = {json.loads(line)["pid"] for line in self.lines('"process.started"')}
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children()
            return sorted((child for child in children if child.pid in started), key=lambda child: child.pid)
        return []

    def lines(self, *needles: str) -> Iterator[str]:
        """The lines of its log with one of these texts in them."""
        with self.log.open(errors="replace") as file:
            for line in file:
                if any(needle in line for needle in needles):
                    yield line.rstrip()

    def tail(self) -> list[str]:
        """The last lines of its log."""
        return [line[:300] for line in list(self.lines(""))[-LAST_LINES:]]


class Fleet:
    """All replicas of a run, former ones included."""

    def __init__(self, options: Options, cluster: Cluster, topics: Topics, folder: Path, store_url: str = "") -> None:
        self.options = options
        self.folder = folder
        self.journal = folder / "journal"
        self.group = topics.requests.replace("requests", "group")
        self.members: dict[int, Replica] = {}  # by their number; those that are to run
        self.all: list[Replica] = []
        self.ended: list[Ended] = []
        self.failed: list[str] = []  # what was to happen to a replica, and did not
        self.cluster = cluster
        self._environment = self._common(topics, store_url)

    def _common(self, topics: Topics, store_url: str) -> dict[str, str]:
        options = self.options
        session = {"KAFKA_CONFIG_SESSION_TIMEOUT_MS": f"{options.session * 1000:.0f}"}
        store = {"WORKER_OFFSET_STORE": "worker.stores.sql:store", "WORKER_STORE_URL": store_url}
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            own.MARKER: self.cluster.run,
            "KAFKA_REQUEST_TOPIC": topics.requests,
            "KAFKA_ACK_TOPIC": topics.answers,
            "KAFKA_DEAD_LETTER_TOPIC": topics.letters,
            "KAFKA_CONSUMER_GROUP_ID": self.group,
            "KAFKA_GROUP_PROTOCOL": options.protocol,
            "WORKER_HANDLER": "chaos.handlers:handle",
            "WORKER_HANDLER_KWARGS": json.dumps({"journal": str(self.journal), "effects": bool(store_url)}),
            "WORKER_PROCESSES": str(options.processes),
            "WORKER_GUARANTEE": options.guarantee,
            "WORKER_ORDERING": options.ordering,
            "WORKER_MAX_ATTEMPTS": str(load.most_attempts(options)),
            "WORKER_RETRY_BACKOFF": "20ms..100ms",
            "WORKER_HTTP_PORT": "0",
            "WORKER_LOG_FORMAT": "json",
            **(session if options.protocol == "classic" else {}),
            **(store if store_url else {}),
        }

    def start(self, number: int, more: Mapping[str, str] = NOTHING, *, lane: int | None = None) -> Replica:
        """Start a replica; from a ``lane`` of another one it gets the address of the brokers only."""
        lane = min(number if lane is None else lane, LANES - 1)
        name = f"r{number}"
        environment = {**self._environment, "KAFKA_BOOTSTRAP_SERVER": self.cluster.address(lane)}
        environment |= {"WORKER_REPLICA": name, **more}
        replica = Replica(name, environment, self.folder / f"{name}-{len(self.all)}.log")
        self.all.append(replica)
        return replica

    def join(self, number: int, more: Mapping[str, str] = NOTHING) -> Replica:
        """Start a replica that is to run from now on."""
        self.members[number] = self.start(number, more)
        return self.members[number]

    async def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until each has as many processes with partitions as it is to have."""
        for replica in list(self.members.values()):
            what = f"{replica.name} is not ready, see {replica.log.name}"
            await until(functools.partial(self._ready, replica), what, seconds)

    def _ready(self, replica: Replica) -> bool:
        assigned = {json.loads(line).get("process") for line in replica.lines('"partitions.assigned"')}
        return len(assigned) >= self.options.processes

    # -- their ends

    async def stop(self, replica: Replica, *, twice: bool = False) -> None:
        """SIGTERM, and wait for its end. One that does not end is killed, and that is told."""
        begin, up = time.monotonic(), replica.up
        own.send([replica.process.pid], signal.SIGTERM)
        if twice:
            await asyncio.sleep(0.3)
            own.send([replica.process.pid] if replica.running else [], signal.SIGTERM)
        try:
            await until(lambda: not replica.running, "", STOP_SECONDS)
        except TimeoutError:
            left = f"{replica.name} has not ended {STOP_SECONDS:g} s after SIGTERM, see {replica.log.name}"
            self.failed.append("\n        ".join([left, *replica.tail()]))
            self.kill(replica)
        self.note(replica, asked=up and not twice, begin=begin)

    def note(self, replica: Replica, *, asked: bool, begin: float | None = None) -> None:
        """Write down how a replica ended."""
        now = time.monotonic()
        self.ended.append(Ended(replica.name, replica.process.wait(), asked, begin or now, now))

    def kill(self, replica: Replica) -> None:
        """SIGKILL to the supervisor, which its processes do not outlive."""
        own.send([replica.process.pid] if replica.running else [], signal.SIGKILL)
        replica.process.wait()

    async def keep(self) -> None:
        """Start again whatever ends by itself; never returns."""
        while True:
            await asyncio.sleep(_AGAIN)
            for number, replica in list(self.members.items()):
                if not replica.running and not replica.lock.locked() and self.members.get(number) is replica:
                    self.note(replica, asked=False)
                    self.join(number)

    async def drain(self) -> None:
        """End all members as a deployment would."""
        members, self.members = list(self.members.values()), {}
        await asyncio.gather(*(self.stop(replica) for replica in members))

    def close(self) -> None:
        """End whatever is left."""
        self.members.clear()
        for replica in self.all:
            own.send([worker.pid for worker in replica.workers()], signal.SIGKILL)
            self.kill(replica)
