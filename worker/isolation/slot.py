"""A place where tasks run: its current child, the tasks of that child, and the waiting tasks."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import structlog

from worker import linux
from worker.core import limits
from worker.core.inflight import OutOfOrderError
from worker.core.model import Outcome, Verdict
from worker.errors import HandlerError
from worker.executors.port import Running
from worker.isolation import seam
from worker.isolation.children import outcome_of_death
from worker.isolation.frames import READY, SKIPPED, Checkpoint, Ended, FrameError, Progress
from worker.isolation.policy import LOOK_SECONDS, Enforcement

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from worker.core.claim import Claim
    from worker.core.limits import Reason
    from worker.core.model import Task
    from worker.isolation.frames import AnyReport
    from worker.isolation.link import Link
    from worker.isolation.mailbox import Outbox
    from worker.isolation.parent import End
    from worker.isolation.policy import Policy

log = structlog.get_logger("isolation")


class Slot:
    """Call everything under the executor's lock, except ``running``, which any thread may read."""

    def __init__(self, policy: Policy, outbox: Outbox) -> None:
        self.queue: deque[Task] = deque()
        self.link: Link | None = None  # None while there is no child
        self.closed = False  # no new task may start
        self.due = 0.0  # when to check again
        self._enforcement = Enforcement(policy, outbox.expired)
        self._outbox = outbox
        self._review_at = 0.0
        self._policy = policy
        self._niceness = 0

    @property
    def running(self) -> Running | None:
        """Return the running task."""
        link = self.link
        running = link.running if link is not None else None
        if link is None or running is None:
            return None
        task = running[1]
        return Running(task, max(0.0, time.monotonic() - link.started_at), (task,), link.child.pid)

    @property
    def idle(self) -> bool:
        """Return whether the child has no task and may have another."""
        link = self.link
        return link is not None and link.cause is None and not (link.flight or link.retiring)

    @property
    def stuck(self) -> bool:
        """Return whether tasks wait that only the executor's thread can start."""
        return bool(self.queue) or (self.link is not None and self.link.full)

    def send(self) -> None:
        """Send the child the tasks that it may have. Give up those that may no longer start, even without a child."""
        link, queue = self.link, self.queue
        if not queue or (link.full if link is not None else not self.closed):
            return
        room = self._enforcement.room(link) if link is not None else 0
        tasks: list[Task] = []
        refused = False
        while queue and (len(tasks) < room or self.closed):
            task = queue.popleft()
            if self.closed or not seam.may_start(task):
                self._outbox.post(Outcome(task, Verdict.NOT_STARTED))
                refused = True
            else:
                task.attempt += 1
                tasks.append(task)
        if link is not None and tasks:
            link.send(tasks)
        if refused:
            self._outbox.notify()

    def withdraw(self, claims: Collection[Claim]) -> list[Task]:
        """Take back the tasks under these claims that have not started."""
        if self.link is not None and any(task.claim in claims for _, task in self.link.flight):
            self._take_back(self.link.withdraw())
        waiting = list(self.queue)
        self.queue = deque(task for task in waiting if task.claim not in claims)
        return [task for task in waiting if task.claim in claims]

    def cancel(self, reason: Reason, claims: Collection[Claim] | None, now: float) -> Task | None:
        """Cancel the running task if it has one of these claims (None: any). Return it if so."""
        link = self.link
        running = link.working if link is not None else None
        if link is None or running is None or (claims is not None and running[1].claim not in claims):
            return None
        link.cancel(running[0], reason, now)
        return running[1]

    def cancel_task(self, task: Task, reason: Reason, now: float) -> bool:
        """Cancel this task if it runs here. Return whether it does."""
        link = self.link
        running = link.working if link is not None else None
        if link is None or running is None or running[1] is not task:
            return False
        link.cancel(running[0], reason, now)
        return True

    def _take_back(self, tasks: Sequence[Task]) -> None:
        """Put tasks that have not started back in front of all others."""
        for task in tasks:
            task.attempt -= 1
        self.queue.extendleft(reversed(tasks))

    # -- reports

    def receive(self) -> bool:
        """Read the reports that have arrived and post the results. Return whether there were any."""
        link = self.link
        if link is None or not link.expects_reports or self._outbox.full:
            return False
        return self._take_reports(link)

    def _take_reports(self, link: Link) -> bool:
        try:
            reports = link.read()
            for report in reports:
                self._settle(link, report)
        except (FrameError, OutOfOrderError) as error:
            log.warning("child.unreadable", pid=link.child.pid, reason=str(error))
            link.kill("channel")
            return False
        return bool(reports)

    def _settle(self, link: Link, report: AnyReport) -> None:
        if isinstance(report, Ended):
            link.ended += 1
            self._outbox.post(seam.outcome_of(link.flight.finished(report.number), report))
        elif isinstance(report, Progress | Checkpoint):
            self._pass_on(link, report)
        elif report.kind == SKIPPED:
            task = link.flight.skipped(report.number)
            if task is not None:
                task.attempt -= 1
                self._outbox.post(Outcome(task, Verdict.NOT_STARTED))
        elif report.kind == READY:
            link.ready = True
        else:
            raise HandlerError(report.text)

    def _pass_on(self, link: Link, report: Progress | Checkpoint) -> None:
        """Pass on a report of the running task. Ignore reports of threads that have outlived their task."""
        running = link.running
        if running is None or running[0] != report.number:
            return
        if isinstance(report, Progress):
            self._outbox.sink.progress(running[1], report.fraction, report.message)
        else:
            self._outbox.sink.checkpoint(running[1], report.data)

    # -- limits

    def leave(self) -> list[Task]:
        """Let the running task continue beside others in another slot. Return all tasks that wait for it.

        This slot gets no further task while others run beside it.
        """
        link = self.link
        if link is None:
            raise AssertionError("a task runs here")
        self._take_back(link.withdraw())
        for _, task in link.flight:  # another one may have started at this moment
            seam.set_aside(task)
        waiting, self.queue = self.queue, deque()
        return list(waiting)

    def step_back(self) -> None:
        """Lower the CPU priority of a long task, the further the longer it has run. Its child ends with it, because it
        cannot get its priority back.
        """
        link, running = self.link, self.running
        if link is None or running is None or not running.is_long(self._policy.long_after):
            return
        link.retiring = True
        niceness = limits.niceness(running.seconds, self._policy.long_after)
        if niceness > self._niceness:
            self._niceness = niceness
            linux.step_back(link.child.pid, niceness)

    def retire(self) -> None:
        """Let the child end after its task."""
        if self.link is not None:
            self.link.retiring = True

    def look(self, now: float) -> bool:
        """Enforce the limits. Return whether there were reports."""
        link = self.link
        if link is None:
            self.due = now + LOOK_SECONDS
            self.send()
            return False
        started, full = link.started, self._outbox.full  # the poll thread may make room at any moment
        news = self.receive()
        if link.flight.first < started and not (full or link.behind):
            link.kill("channel")  # its end was reported before another could start, but did not arrive
        link.flush()
        if self.closed or (now >= self._review_at and self._outdated(link)):
            self._take_back(link.withdraw())  # sending them again determines which may still start
        if now >= self._review_at:
            self._review_at = now + LOOK_SECONDS
        back, self.due = self._enforcement.look(link, now)
        self._take_back(back)
        self.send()
        return news

    @staticmethod
    def _outdated(link: Link) -> bool:
        """Return whether the child has tasks that have not started and may no longer start."""
        started = link.started
        return any(number > started and not seam.may_start(task) for number, task in link.flight)

    # -- the child's end

    def settle_death(self, link: Link, end: End, message_format: str) -> bool:
        """Settle the tasks of a child that has ended. Return whether a task is to blame."""
        while self._take_reports(link):
            pass
        death = link.flight.settle_death(link.started)
        for task in death.culprits:
            limits = self._enforcement.limits_of(task.record.headers)
            self._outbox.post(outcome_of_death(link, task, limits, end, message_format))
        self._take_back(death.innocents)
        return bool(death.culprits)
