"""Runs tasks in a child process, one after another, and replaces the child when necessary.

The poll thread sends tasks and takes reports itself, so that no other thread has to wake up for a task. The executor's
own thread enforces limits and handles the end of the child. Neither waits for the other for more than a few
milliseconds.

With extra slots, a task that has run for long keeps its child, and other children run the next tasks.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

import structlog

from worker import linux
from worker.executors.port import ChildEnded, all_running
from worker.executors.reporting import run_reporting
from worker.isolation.children import Children
from worker.isolation.mailbox import Outbox
from worker.isolation.parent import RefusedProcessError
from worker.isolation.policy import BRIEF_SECONDS, LOOK_SECONDS, Policy
from worker.isolation.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from worker.core.claim import Claim
    from worker.core.limits import Reason
    from worker.core.model import Task
    from worker.executors.port import Expired, Running
    from worker.isolation.config import ChildConfig
    from worker.isolation.link import Link
    from worker.isolation.mailbox import ChildMailbox

REFUSED_SECONDS = 1.0  # before another attempt to start a child
STOP_SECONDS = 1.0  # for the thread to end, in addition to the grace period of the child

log = structlog.get_logger("isolation")


class ProcessExecutor:
    """Runs tasks in child processes. Public methods are for the poll thread. See ``Executor``."""

    def __init__(self, config: ChildConfig, policy: Policy, mailbox: ChildMailbox) -> None:
        """Import the handler in the template process. Raise HandlerError, TemplateDiedError or RefusedProcessError."""
        self._policy = policy
        self._message_format = config.message_format
        self._mailbox = mailbox
        self._outbox = Outbox(mailbox)
        self._children = Children(config, mailbox.wakeup)
        self._lock = threading.Lock()  # of the slots; the poll thread never waits for a child under it
        self._slot = Slot(policy, self._outbox)
        self._beside: tuple[Slot, ...] = ()  # slots with at most one task each and nothing behind it
        self._stopping = False
        self._install_at = 0.0  # when to start the missing child
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()  # used by the executor's thread
        self._poll.register(self._wake, select.POLLIN)
        self._thread = threading.Thread(target=run_reporting, args=(self._serve, mailbox), name="executor", daemon=True)

    # -- the poll thread

    def start(self) -> None:
        """Start the first child and the thread that monitors it."""
        self._install(self._slot)
        self._thread.start()

    def stop(self) -> None:
        """End the child, with its tear-down hook if it is idle, and the template. The grace period limits this."""
        self._stopping = True
        self._wake_thread()
        self._thread.join(self._policy.grace + STOP_SECONDS)
        self._children.template.close()
        for slot in self._slots:
            link, slot.link = slot.link, None
            if link is not None and not self._thread.is_alive():
                link.child.close()

    @property
    def closed(self) -> bool:
        """Return whether no new task may start."""
        return self._slot.closed

    @closed.setter
    def closed(self, value: bool) -> None:
        self._slot.closed = value
        self._wake_thread()

    @property
    def running(self) -> Running | None:
        """See ``Executor``."""
        return self._slot.running

    @property
    def beside(self) -> Sequence[Running]:
        """See ``Executor``."""
        return [running for slot in self._beside if (running := slot.running) is not None] if self._beside else ()

    @property
    def child_bytes(self) -> int:
        """See ``Executor``."""
        links = [slot.link for slot in self._slots]
        return sum([linux.resident_with_all(link.child.pid) for link in links if link is not None])

    def check(self) -> Sequence[Expired]:
        """Take the reports of children, and let others run beside a long task. The executor's thread enforces limits.

        Return the tasks that it has cancelled since the last call.
        """
        self._look()
        expired = self._outbox.expired
        return [expired.popleft() for _ in range(len(expired))]

    def _look(self) -> None:
        if not self._lock.acquire(blocking=False):
            return  # the executor's thread holds the lock and does this
        try:
            for slot in self._slots:
                if slot.receive():
                    slot.send()
            needed = self._slot.stuck
            if self._policy.extra_slots and self._may_set_aside():
                self._set_aside()
                needed = True
        finally:
            self._lock.release()
        if needed:
            self._wake_thread()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Run these tasks after those that were submitted before."""
        self._slot.queue.extend(tasks)
        if self._lock.acquire(blocking=False):
            try:
                self._slot.send()
                if not self._slot.stuck:
                    return
            finally:
                self._lock.release()
        self._wake_thread()

    def withdraw(self, claims: Collection[Claim]) -> list[Task]:
        """Take back the tasks under these claims that have not started."""
        with self._lock:
            withdrawn = self._slot.withdraw(claims)
        self._wake_thread()
        return withdrawn

    def cancel(self, reason: Reason, claims: Collection[Claim] | None = None) -> list[Task]:
        """Cancel the running tasks under these claims, kill them after the grace period, and return them."""
        with self._lock:
            now = time.monotonic()
            cancelled = [task for slot in self._slots if (task := slot.cancel(reason, claims, now)) is not None]
        self._wake_thread()
        return cancelled

    def _wake_thread(self) -> None:
        os.eventfd_write(self._wake, 1)

    def cancel_task(self, task: Task, reason: Reason) -> bool:
        """See ``Executor``."""
        with self._lock:
            now = time.monotonic()
            found = any(slot.cancel_task(task, reason, now) for slot in self._slots)
        if found:
            self._wake_thread()
        return found

    # -- either thread, under the lock

    @property
    def _slots(self) -> list[Slot]:
        return [*self._beside, self._slot]

    def _may_set_aside(self) -> bool:
        """Return whether others may run beside the running task: one of all tasks is long, and a slot is free."""
        running = self._slot.running
        if running is None or self._slot.closed:
            return False
        if len(self._beside) >= self._policy.extra_slots and self._idle_slot() is None:
            return False
        return running.seconds >= BRIEF_SECONDS and self._has_long()

    def _has_long(self) -> bool:
        return any(running.is_long(self._policy.long_after) for running in all_running(self))

    def _idle_slot(self) -> Slot | None:
        return next((slot for slot in self._beside if slot.idle), None)

    def _set_aside(self) -> None:
        """Move the tasks that wait for the running task to another slot, as far as the order allows."""
        slot, free = self._slot, self._idle_slot()
        waiting = slot.leave()
        self._beside = (*[one for one in self._beside if one is not free], slot)
        self._slot = free or Slot(self._policy, self._outbox)
        self._slot.queue.extend(waiting)
        self._slot.send()

    def _tend_beside(self) -> None:
        """Lower the priority of long tasks. Without any, the process runs one task at a time again."""
        if not self._beside:
            return
        has_long = self._has_long()
        for slot in self._beside:
            slot.step_back()
            if not has_long:
                slot.retire()

    # -- the executor's thread

    def _serve(self) -> None:
        while not self._stopping:
            self._turn()
        self._wind_up()

    def _turn(self) -> None:
        ready = self._wait()
        with self._lock:
            slots = self._slots
        for slot in slots:
            if slot.link is not None and slot.link.child.watch in ready:
                self._replace(slot, slot.link)
        if self._slot.link is None and time.monotonic() >= self._install_at:
            self._install(self._slot)
        with self._lock:
            self._tend_beside()
            now = time.monotonic()
            news = [slot.look(now) for slot in self._slots]
        if any(news):
            self._mailbox.notify()  # at the end, because from now on the poll thread wants the interpreter lock

    def _wait(self) -> set[int]:
        """Wait for something to do. Return the descriptors that are ready."""
        with self._lock:
            full = {slot.link.child.tasks for slot in self._slots if slot.link is not None and slot.link.full}
            due = min(slot.due for slot in self._slots)
        for descriptor in full:
            self._poll.register(descriptor, select.POLLOUT)
        left = min(LOOK_SECONDS, max(0.0, due - time.monotonic()))
        ready = {descriptor for descriptor, _ in self._poll.poll(left * 1000)}
        for descriptor in full:
            self._poll.unregister(descriptor)
        if self._wake in ready:
            os.eventfd_read(self._wake)
        return ready

    # -- children

    def _install(self, slot: Slot) -> None:
        """Start another child in the slot.

        If the kernel refuses it, try again later, so that the children beside can finish their tasks. Without any,
        raise, because other processes of the group may run the waiting tasks.
        """
        try:
            link = self._children.next()
        except RefusedProcessError as error:
            if not self._beside:
                raise
            log.warning("child.unstartable", reason=str(error))
            self._install_at = time.monotonic() + REFUSED_SECONDS
            return
        self._poll.register(link.child.watch, select.POLLIN)
        with self._lock:
            slot.link = link
            slot.send()

    def _replace(self, slot: Slot, link: Link) -> None:
        """Settle the tasks of a child that has ended, and start another; a slot beside others is removed."""
        with self._lock:
            slot.link = None
        end = self._children.end_of(link)
        with self._lock:
            blamed = slot.settle_death(link, end, self._message_format)
            if slot in self._beside:
                self._beside = tuple(one for one in self._beside if one is not slot)
                self._slot.queue.extendleft(reversed(slot.queue))
        self._poll.unregister(link.child.watch)
        link.child.close()
        self._mailbox.post(ChildEnded(link.end_cause))
        self._mailbox.notify()
        self._children.count(link, blamed=blamed)

    def _wind_up(self) -> None:
        """Let idle children end by themselves. Tasks that still run end with the template."""
        links = [slot.link for slot in self._slots if slot.link is not None and not slot.link.flight]
        for link in links:
            link.child.finish()
        end = time.monotonic() + self._policy.grace
        for link in links:
            poll = select.poll()
            poll.register(link.child.watch, select.POLLIN)
            poll.poll(max(0.0, end - time.monotonic()) * 1000)
