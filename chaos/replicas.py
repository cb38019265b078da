"""The replicas of a run: started, watched, and restarted when they end by themselves, as Kubernetes would do."""

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

from chaos import features, log_events, procutil
from chaos.clocks import Clocks
from chaos.cluster import LISTENERS, until
from chaos.procutil import ROOT
from chaos.users import Users, permissions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from chaos.cluster import Cluster
    from chaos.options import Options
    from chaos.topics import Topics

STOP_SECONDS = 120.0  # after SIGTERM: the last answers and commits alone may take a minute
READY_SECONDS = 120.0
LAST_LINES = 12
_RESTART_AFTER = 0.5  # seconds
FAKE_HOST = {"PYTHONPATH": f"{ROOT}/chaos/fake_host:{ROOT}"}
NO_SETTINGS: Mapping[str, str] = {}
SMALL_QUEUE = {"KAFKA_CONFIG_QUEUE_BUFFERING_MAX_MESSAGES": "3"}


class Ended(NamedTuple):
    """A replica that ended after ``sigterms`` signals. ``begin`` is the time of the first one, or of its start."""

    name: str
    code: int
    sigterms: int
    supervising: bool
    duplicate: bool
    begin: float
    end: float


class Replica:
    """A ``worker run``. A ``duplicate`` has the name of another replica and must be refused."""

    def __init__(self, name: str, environment: dict[str, str], log: Path, *, duplicate: bool = False) -> None:
        self.name = name
        self.log = log
        self.user = environment.get("KAFKA_CONFIG_SASL_USERNAME", "")
        self.duplicate = duplicate
        self.started_at = time.monotonic()
        self.lock = asyncio.Lock()  # held while a fault affects this replica
        self.process = procutil.start([sys.executable, "-P", "-m", "worker", "run"], environment, log)

    @property
    def running(self) -> bool:
        """Return whether its supervisor is alive."""
        return self.process.poll() is None

    def workers(self) -> list[psutil.Process]:
        """Return its worker processes, oldest first, without the one that only checks the broker at the start."""
        started = log_events.worker_pids(self.log)
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children()
            return sorted((child for child in children if child.pid in started), key=lambda child: child.pid)
        return []

    def tail(self) -> list[str]:
        """Return the last lines of its log."""
        return [line[:300] for line in list(log_events.lines(self.log, ""))[-LAST_LINES:]]


class Replicas:
    """All replicas of a run, former ones included."""

    def __init__(self, options: Options, cluster: Cluster, topics: Topics, folder: Path, store_url: str = "") -> None:
        self.options = options
        self.folder = folder
        self.journal = folder / "journal"
        self.group = topics.requests.replace("requests", "group")
        self.members: dict[int, Replica] = {}  # those that should run, by number
        self.all: list[Replica] = []
        self.ended: list[Ended] = []
        self.failed: list[str] = []  # expectations that were not met
        self.cluster = cluster
        self.clocks = Clocks(folder, options.uses)
        self.users: Users | None = None
        if cluster.certificate:
            self.users = Users(cluster.bootstrap, cluster.certificate, permissions(topics, self.group, options))
        self._environment = self._common(topics, store_url)

    def _common(self, topics: Topics, store_url: str) -> dict[str, str]:
        options = self.options
        session = {"KAFKA_CONFIG_SESSION_TIMEOUT_MS": f"{options.session * 1000:.0f}"}
        store = {"WORKER_OFFSET_STORE": "worker.stores.sql:store", "WORKER_STORE_URL": store_url}
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            procutil.MARKER: self.cluster.run,
            "KAFKA_REQUEST_TOPIC": topics.requests,
            "KAFKA_ACK_TOPIC": topics.answers,
            "KAFKA_DEAD_LETTER_TOPIC": topics.dead_letters,
            "KAFKA_CONSUMER_GROUP_ID": self.group,
            "KAFKA_GROUP_PROTOCOL": options.protocol,
            "WORKER_HANDLER": "chaos.handlers:handle",
            "WORKER_HANDLER_KWARGS": json.dumps({"journal": str(self.journal), "effects": bool(store_url)}),
            "WORKER_PROCESSES": str(options.processes),
            "WORKER_GUARANTEE": options.guarantee,
            "WORKER_ORDERING": options.ordering,
            "WORKER_MAX_ATTEMPTS": str(options.max_attempts),
            "WORKER_RETRY_BACKOFF": "20ms..100ms",
            "WORKER_HTTP_PORT": "0",
            "WORKER_LOG_FORMAT": "json",
            **(session if options.protocol == "classic" else {}),
            **(store if store_url else {}),
            **features.settings(options.uses),
            **({"KAFKA_STATE_TOPIC": topics.states} if features.use_states(options.uses) else {}),
        }

    @property
    def client_environment(self) -> dict[str, str]:
        """Return the settings of a client that reaches the brokers as the first replica does."""
        ours = {name: value for name, value in self._environment.items() if name.startswith("KAFKA_")}
        formats = {name: value for name, value in self._environment.items() if name == "WORKER_FORMAT"}
        return {**ours, **formats, "KAFKA_BOOTSTRAP_SERVER": self.cluster.address(0)}

    def start(
        self,
        number: int,
        more: Mapping[str, str] = NO_SETTINGS,
        *,
        listener: int | None = None,
        duplicate: bool = False,
    ) -> Replica:
        """Start a replica. ``listener`` makes it connect through the listeners of another number."""
        listener = min(number if listener is None else listener, LISTENERS - 1)
        name = f"r{number}"
        environment = {**self._environment, "KAFKA_BOOTSTRAP_SERVER": self.cluster.address(listener)}
        environment |= {"WORKER_REPLICA": name, **self.clocks.environment(name), **more}
        environment |= self.users.environment() if self.users else {}
        replica = Replica(name, environment, self.folder / f"{name}-{len(self.all)}.log", duplicate=duplicate)
        self.all.append(replica)
        return replica

    def join(self, number: int, more: Mapping[str, str] = NO_SETTINGS) -> Replica:
        """Start a replica that should run from now on."""
        self.members[number] = self.start(number, more)
        return self.members[number]

    def users_used(self) -> set[str]:
        """Return the users of the replicas that run."""
        return {replica.user for replica in self.all if replica.running}

    @property
    def logs(self) -> list[Path]:
        """Return the logs of all replicas."""
        return [replica.log for replica in self.all]

    async def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until all processes of all members have partitions. Raise TimeoutError after ``seconds``."""
        for replica in list(self.members.values()):
            what = f"{replica.name} is not ready, see {replica.log.name}"
            await until(functools.partial(self._ready, replica), what, seconds)

    def _ready(self, replica: Replica) -> bool:
        return len(log_events.assigned_processes(replica.log)) >= self.options.processes

    # -- the end of a replica

    async def stop(self, replica: Replica, *, twice: bool = False) -> None:
        """Send SIGTERM and wait for the end. Kill a replica that does not end, which fails the run."""
        begin, supervising = time.monotonic(), log_events.supervising(replica.log)
        procutil.send([replica.process.pid], signal.SIGTERM)
        if twice:
            await asyncio.sleep(0.3)
            procutil.send([replica.process.pid] if replica.running else [], signal.SIGTERM)
        try:
            await until(lambda: not replica.running, "", STOP_SECONDS)
        except TimeoutError:
            left = f"{replica.name} has not ended {STOP_SECONDS:g} s after SIGTERM, see {replica.log.name}"
            self.failed.append("\n        ".join([left, *replica.tail()]))
            self.kill(replica)
            return
        self.record_end(replica, 2 if twice else 1, begin, supervising=supervising)

    def record_end(self, replica: Replica, sigterms: int, begin: float, *, supervising: bool) -> None:
        """Record how a replica ended."""
        code, now = replica.process.wait(), time.monotonic()
        self.ended.append(Ended(replica.name, code, sigterms, supervising, replica.duplicate, begin, now))

    def record_unrequested_end(self, replica: Replica) -> None:
        """Record the end of a replica that the suite did not stop."""
        self.record_end(replica, 0, replica.started_at, supervising=log_events.supervising(replica.log))

    def kill(self, replica: Replica) -> None:
        """Send SIGKILL to the supervisor. Its processes do not outlive it."""
        procutil.send([replica.process.pid] if replica.running else [], signal.SIGKILL)
        replica.process.wait()

    async def keep(self) -> None:
        """Restart every member that ends by itself. Never return."""
        while True:
            await asyncio.sleep(_RESTART_AFTER)
            for number, replica in list(self.members.items()):
                if not replica.running and not replica.lock.locked() and self.members.get(number) is replica:
                    self.record_unrequested_end(replica)
                    self.join(number)

    async def drain(self) -> None:
        """Stop all members, as a deployment would do."""
        members, self.members = list(self.members.values()), {}
        await asyncio.gather(*(self.stop(replica) for replica in members))

    def close(self) -> None:
        """Kill all remaining processes."""
        self.members.clear()
        for replica in self.all:
            procutil.send([worker.pid for worker in replica.workers()], signal.SIGKILL)
            self.kill(replica)
