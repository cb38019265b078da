"""Limits of a child and its tasks: enforces them, and replaces children that have run or grown enough."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker import linux
from worker.core.expiry import DeadlineError, deadline_of
from worker.core.limits import Cancel, Kill, Limits, judge
from worker.core.timelimit import limit_of
from worker.executors.port import Expired

if TYPE_CHECKING:
    from collections import deque

    from worker.core.model import Headers, Task
    from worker.isolation.link import Link

LOOK_SECONDS = 0.05  # at most, between two checks of a child, while a task may grow by 1 GB/s
MOST_ENDED = 16  # adopted processes that nobody waits for; each keeps its number until the child ends
BRIEF_SECONDS = 0.05  # a task that has run for less will soon end, so others wait for it even beside a long one


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of every task, and when a child is replaced. Seconds and bytes; 0 means no limit."""

    timeout: float = 0.0
    grace: float = 5.0
    memory: int = 0
    child_max_tasks: int = 0
    child_max_memory: int = 0
    extra_slots: int = 0
    long_after: float = 60.0  # others may run beside a task that has run this long


class Enforcement:
    """Applies a policy. Call everything under the executor's lock."""

    def __init__(self, policy: Policy, expired: deque[Expired]) -> None:
        """``expired`` receives the tasks that are cancelled at a limit."""
        self._policy = policy
        self._expired = expired
        self._usual = Limits(policy.timeout or math.inf, math.inf, policy.grace, policy.memory or math.inf)
        self._looked_at = 0.0

    def limits_of(self, headers: Headers) -> Limits:
        """Return the limits of a task with these headers. A header that cannot be read sets none: the child rejects the
        request.
        """
        if not headers:
            return self._usual
        usual = self._usual
        return Limits(limit_of(headers, self._policy.timeout), _deadline(headers), usual.grace, usual.memory)

    def room(self, link: Link) -> float:
        """Return how many more tasks this child may have."""
        if link.retiring or link.cause is not None:
            return 0
        most = self._policy.child_max_tasks
        return most - link.ended - len(link.flight) if most else math.inf

    def look(self, link: Link, now: float) -> tuple[list[Task], float]:
        """Do what is due. Return tasks that the child has not started and will not start, and when to check again."""
        measure = now - self._looked_at >= LOOK_SECONDS
        if measure:
            self._looked_at = now
        self._retire(link, now, measure=measure)
        running = link.working
        if running is None or link.cause is not None:
            return [], now + LOOK_SECONDS
        number, task = running
        limits = self.limits_of(task.record.headers)
        resident = linux.resident_with_all(link.child.pid) if measure and self._policy.memory else 0
        request = link.request_of(number)
        step = judge(now, limits, started_at=link.started_at, resident=resident, request=request)
        if isinstance(step, Kill):
            return link.kill_for(number, step.cause), now + LOOK_SECONDS
        if isinstance(step, Cancel):
            link.cancel(number, step.reason, now)
            self._expired.append(Expired(task, step.reason))
            return [], now + min(LOOK_SECONDS, limits.grace)
        return [], min(now + LOOK_SECONDS, step.until)

    def _retire(self, link: Link, now: float, *, measure: bool) -> None:
        """Let a child that has run or grown as much as allowed end as soon as it is idle."""
        policy = self._policy
        if link.retired_at is not None:
            if now >= link.retired_at + policy.grace:  # its tear-down does not end
                link.child.kill()
            return
        if measure and policy.child_max_memory and not link.retiring:
            link.retiring = linux.resident_bytes(link.child.pid) > policy.child_max_memory
        if measure and not (link.flight or link.retiring):
            link.retiring = linux.ended_children_of(link.child.pid) > MOST_ENDED
        used_up = link.retiring or 0 < policy.child_max_tasks <= link.ended
        if used_up and not link.flight:
            link.retire(now)


def _deadline(headers: Headers) -> float:
    """Return the request's deadline on the monotonic clock; infinity without one."""
    try:
        deadline = deadline_of(headers)
    except DeadlineError:
        deadline = None
    return math.inf if deadline is None else deadline - time.time() + time.monotonic()
