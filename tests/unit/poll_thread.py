"""A replacement for the poll thread in tests of the executor's thread."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

from tests.unit.support import PARTITION, a_task
from worker.core.lease import Lease
from worker.core.model import Outcome, Partition, Verdict
from worker.core.ordering_group import OrderingGroup
from worker.executors.mailbox import Mailbox
from worker.executors.thread import ThreadExecutor

if TYPE_CHECKING:
    from worker.core.model import Task
    from worker.executors.port import Event

LONG = 30.0  # seconds; only a failing test waits this long
OTHER = Partition("requests", 4)


class GatedRunner:
    """A runner of tasks. A task that ``hold`` names waits until the test opens its gate."""

    current = None

    def __init__(self) -> None:
        self.started: list[int] = []
        self.verdicts: dict[int, Verdict] = {}
        self.result = b""
        self.gates: dict[int, threading.Event] = {}
        self.begun: dict[int, threading.Event] = {}

    def hold(self, offset: int) -> None:
        self.gates[offset], self.begun[offset] = threading.Event(), threading.Event()

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass

    def run(self, task: Task) -> Outcome:
        offset = task.record.offset
        self.started.append(offset)
        if offset in self.gates:
            self.begun[offset].set()
            assert self.gates[offset].wait(LONG)
        return Outcome(task, self.verdicts.get(offset, Verdict.OK), result=self.result)


def next_event(mailbox: Mailbox) -> Event:
    """Wait for the next event, and return it. It must be the only one."""
    ends_at = time.monotonic() + LONG
    while not (events := mailbox.take()):
        assert time.monotonic() < ends_at
        mailbox.wait(0.01)
    (event,) = events
    return event


class PollThread:
    """A running executor, and the outcomes that it has returned."""

    def __init__(self) -> None:
        self.runner, self.mailbox = GatedRunner(), Mailbox()
        self.executor = ThreadExecutor(cast("Any", self.runner), self.mailbox)
        self.lease = Lease(PARTITION)
        self.group: OrderingGroup[Task] = OrderingGroup()
        self.outcomes: list[Outcome] = []
        self.executor.start()

    def submit(self, *offsets: int, lease: Lease | None = None) -> None:
        group = None if lease else self.group
        self.executor.submit([a_task(offset=offset, lease=lease or self.lease, group=group) for offset in offsets])

    def collect(self, count: int) -> list[tuple[int, str]]:
        """Return the offsets and verdicts of the next ``count`` outcomes."""
        while len(self.outcomes) < count:
            self.mailbox.wait(LONG)
            self.outcomes += [event for event in self.mailbox.take() if isinstance(event, Outcome)]
        taken, self.outcomes = self.outcomes[:count], self.outcomes[count:]
        return [(outcome.task.record.offset, outcome.verdict.name) for outcome in taken]
