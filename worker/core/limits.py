"""The limits of a task in a child process, and what happens when it reaches one. Pure: ``now`` is passed in.

A task that reaches a time limit is cancelled, and its child is killed after the grace period. A task that uses too much
memory is killed at once.
"""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass
from typing import Literal, NamedTuple

from worker.core.model import Failure, Verdict

Reason = Literal["revoked", "drain", "deadline", "timeout", "requested"]
Cause = Literal["revoked", "drain", "deadline", "timeout", "requested", "memory", "channel"]
EndCause = Cause | Literal["crash", "recycled"]  # why a child ended

MIB = 1 << 20
NICE_STEP, MOST_NICE = 5, 19  # nice levels; the last one is the lowest CPU priority


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one task. Times are seconds on the clock of ``now``."""

    timeout: float = math.inf  # seconds for this attempt, from its start
    deadline: float = math.inf  # a time on the clock of ``now``
    grace: float = 5.0  # seconds from the cancellation to the kill
    memory: float = math.inf  # resident bytes


class Request(NamedTuple):
    """The task was cancelled."""

    reason: Reason
    at: float


class Wait(NamedTuple):
    """Do nothing before ``until``."""

    until: float


class Cancel(NamedTuple):
    """Cancel the task."""

    reason: Reason


class Kill(NamedTuple):
    """Kill the child."""

    cause: Cause


def judge(
    now: float, limits: Limits, *, started_at: float, resident: int = 0, request: Request | None = None
) -> Wait | Cancel | Kill:
    """Return what to do with the task that has run since ``started_at`` and uses ``resident`` bytes."""
    if resident > limits.memory:
        return Kill("memory")
    if request is not None:
        due = request.at + limits.grace
        return Kill(request.reason) if now >= due else Wait(due)
    timeout = started_at + limits.timeout
    due = min(timeout, limits.deadline)
    if now < due:
        return Wait(due)
    return Cancel("timeout" if timeout <= limits.deadline else "deadline")


def niceness(seconds: float, long_after: float) -> int:
    """Return the nice level of a long task that runs beside others. It rises each time the run time doubles.

    So shorter tasks get the CPU first, as with a scheduler that prefers what has run least.
    """
    doublings = math.floor(math.log2(max(1.0, seconds / max(long_after, 1e-3))))
    return min(MOST_NICE, NICE_STEP * (1 + doublings))


def how_it_ended(status: int) -> str:
    """Describe how a process ended. ``status`` is the exit code, or the negative number of the signal."""
    if status >= 0:
        return f"exit code {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    hint = ", which is also what the kernel sends when memory runs out" if status == -signal.SIGKILL else ""
    return f"{name}{hint}"


def failure_of(cause: Cause | None, status: int, limits: Limits, traceback: str = "") -> tuple[Verdict, Failure]:
    """Return the verdict and the failure of an attempt whose child died. ``cause`` is why we killed it, or None."""
    if cause is None:
        text = f"the child process that ran the task ended with {how_it_ended(status)}"
        return Verdict.FAILED, Failure("ProcessDied", text, traceback)
    if cause == "memory":
        text = f"the task and its processes used more than {limits.memory / MIB:.0f} MiB (WORKER_TASK_MEMORY)"
        return Verdict.FAILED, Failure("MemoryLimitExceeded", text, traceback)
    if cause == "channel":
        text = "the handler closed descriptors that it had not opened: the child process was killed"
        return Verdict.FAILED, Failure("ProcessDied", text, traceback)
    if cause in ("revoked", "drain"):
        return Verdict.DROPPED, Failure("Cancelled", cause)
    return _out_of_time(cause, limits, traceback)


def _out_of_time(cause: Cause, limits: Limits, traceback: str) -> tuple[Verdict, Failure]:
    then = f"it was cancelled, and killed {limits.grace:g} s later"
    if cause == "deadline":
        return Verdict.EXPIRED, Failure("TimeLimitExceeded", f"the request's deadline passed; {then}", traceback)
    if cause == "timeout":
        text = f"the attempt took longer than its limit of {limits.timeout:g} s; {then}"
        return Verdict.FAILED, Failure("TimeLimitExceeded", text, traceback)
    return Verdict.CANCELLED, Failure("Cancelled", cause)
