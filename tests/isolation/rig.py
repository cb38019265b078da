"""An executor with real processes and without Kafka. A test submits tasks and takes their outcomes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from worker import linux
from worker.codec import encode_request
from worker.core.lease import Lease
from worker.core.model import Headers, Outcome, Partition, Record, Task
from worker.executors.port import ChildEnded, ExecutorFailed, Expired
from worker.executors.reports import PendingReport
from worker.isolation.config import ChildConfig
from worker.isolation.executor import ProcessExecutor
from worker.isolation.mailbox import ChildMailbox
from worker.isolation.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.ordering_group import OrderingGroup
    from worker.executors.reports import Report
    from worker.isolation.link import Link

WAIT_LIMIT = 30.0  # seconds; only a failing test waits this long
TOPIC = "requests"


def config(handler: str = "faulty:handle") -> ChildConfig:
    """Return the configuration of a child that runs this handler."""
    return ChildConfig(handler, {}, 3, [TOPIC], "ERROR", "json", "rig-0")


class Rig:
    """An executor whose poll thread is the thread of the test."""

    def __init__(self, policy: Policy | None = None, handler: str = "faulty:handle") -> None:
        self.mailbox = ChildMailbox()
        self.lease = Lease(Partition(TOPIC, 3))
        self.executor = ProcessExecutor(config(handler), policy or Policy(), self.mailbox)
        self.executor.start()
        self.reports: list[Report] = []  # of handlers, in the order in which they were taken
        self.expired: list[Expired] = []  # tasks that were cancelled at a limit
        self.ends: list[str] = []  # why children ended, as far as the events were taken
        self._waiting: list[Outcome] = []
        self._made = 0

    def tasks(
        self,
        *payloads: str,
        headers: Headers = (),
        group: OrderingGroup[Task] | None = None,
        lease: Lease | None = None,
    ) -> list[Task]:
        """Return a task for each payload. The sequence of its request and its offset count up."""
        found = []
        for payload in payloads:
            self._made += 1
            where = lease or self.lease
            value = encode_request(self._made, payload)
            record = Record(where.partition, self._made, b"key", value, headers, 1_760_000_000_000)
            found.append(Task(record, where, 0))
            found[-1].group = group
        return found

    def submit(
        self,
        *payloads: str,
        headers: Headers = (),
        group: OrderingGroup[Task] | None = None,
        lease: Lease | None = None,
    ) -> list[Task]:
        """Submit a task for each payload, in one call. Return the tasks."""
        tasks = self.tasks(*payloads, headers=headers, group=group, lease=lease)
        self.executor.submit(tasks)
        return tasks

    def take(self, count: int, seconds: float = WAIT_LIMIT) -> list[Outcome]:
        """Return the next outcomes, in the order in which they were posted."""
        end = time.monotonic() + seconds
        while len(self._waiting) < count:
            assert time.monotonic() < end, f"{len(self._waiting)} of {count} outcomes: {self._waiting}"
            self.mailbox.wait(0.05)
            self.expired += self.executor.check()
            for event in self.mailbox.take():
                if isinstance(event, ExecutorFailed):
                    raise event.error
                if isinstance(event, PendingReport):
                    self.reports.append(event.take())
                elif isinstance(event, ChildEnded):
                    self.ends.append(event.cause)
                else:
                    self._waiting.append(event)
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def take_none(self, seconds: float) -> None:
        """Check that no outcome comes for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.mailbox.wait(0.05)
            self.executor.check()
        assert not self.mailbox.take()

    def run(self, *payloads: str, headers: Headers = ()) -> list[Outcome]:
        """Submit a task for each payload. Return their outcomes."""
        self.submit(*payloads, headers=headers)
        return self.take(len(payloads))

    def wait_running(self, task: Task) -> None:
        """Wait until this task runs."""
        end = time.monotonic() + WAIT_LIMIT
        while (running := self.executor.running) is None or running[0] is not task:
            assert time.monotonic() < end, "it does not start"
            time.sleep(0.002)

    @property
    def link(self) -> Link:
        """Return the executor's link to the current child."""
        end = time.monotonic() + WAIT_LIMIT
        while (link := self.executor._slot.link) is None:
            assert time.monotonic() < end
        return link

    @property
    def family(self) -> list[int]:
        """Return the process ids of the template's descendants."""
        return linux.descendants_of(self.executor._children.template.pid)


def names(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the verdicts, with the type of the failure if there is one."""
    return [f"{one.verdict.name} {one.failure.type}" if one.failure else one.verdict.name for one in outcomes]


def descriptors() -> list[str]:
    """Return the files, sockets and pipes that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the directory itself
            found.append(str(link.readlink()))
    return found
