"""What follows the end of a worker process: it is started again after a while, or the replica gives up."""

from __future__ import annotations

import signal
from typing import NamedTuple

from worker.core.retry import RetryPolicy
from worker.errors import ExitCode

USELESS_LIMIT = 5  # endings in a row before joining the group, or by a fault of its own before any answer
SHORT_LIMIT = 20  # endings in a row of processes that joined and ended soon after; a back-off apart, so minutes
HEALTHY_SECONDS = 10.0  # in the group for so long: what was before is forgotten

# The first delay is short, because a process that was killed once is no sign of anything.
_BACKOFF = RetryPolicy(max_attempts=SHORT_LIMIT, first=0.2, greatest=30.0)
_OWN_CODES = {code: code.name.lower() for code in ExitCode if code is not ExitCode.SUPERVISOR_CRASHED}
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", _OWN_CODES[ExitCode.DRAINED])  # somebody wanted it gone
_HOPELESS = (ExitCode.SETTINGS_INVALID, ExitCode.HANDLER_UNLOADABLE)


class Ending(NamedTuple):
    """How a process ended: ``name`` for people and metrics, ``code`` if it ended by itself, else None."""

    name: str
    code: int | None = None


class History(NamedTuple):
    """What is remembered of a slot: endings in a row, of useless processes and since the last healthy run."""

    useless: int = 0
    short: int = 0


class Respawn(NamedTuple):
    """Start another process in the slot, after so many seconds."""

    after: float
    history: History


class Halt(NamedTuple):
    """Stop the replica with this exit code."""

    exit_code: ExitCode
    reason: str


def classify(status: int, *, out_of_memory: bool = False, stuck: bool = False) -> Ending:
    """Name an ending. ``status`` is an exit code, or a signal's number below 0.

    ``out_of_memory`` says that the kernel has killed something of this container since the last look,
    ``stuck`` that the watchdog had condemned the process: a bare SIGKILL tells neither.
    """
    if status >= 0:
        return Ending(_OWN_CODES.get(status, f"exit_{status}"), status)  # type: ignore[call-overload]
    if stuck:
        return Ending("stuck")
    if out_of_memory and -status == signal.SIGKILL:
        return Ending("out_of_memory")
    try:
        return Ending(signal.Signals(-status).name)
    except ValueError:  # a real-time signal
        return Ending(f"signal_{-status}")


def decide(
    ending: Ending,
    joined_for: float | None,
    history: History,
    *,
    started: bool,
    useful: bool,
    jitter: float,
    max_attempts: int = 0,
) -> Respawn | Halt:
    """What to do after an ending. ``joined_for`` is the seconds the process was in the group, None if it never was.

    ``started`` says whether any process of this replica ever joined, ``useful`` whether this one had answered
    anything; ``jitter`` in [0, 1] shortens the delay. A request may end up to ``max_attempts`` processes before it is
    given up, and the next must live to do that.
    """
    if joined_for is None:
        if ending.code in _HOPELESS or (ending.code == ExitCode.BROKER_UNREACHABLE and not started):
            return Halt(ExitCode(ending.code), "a worker process could not start")
        if ending.code == ExitCode.BROKER_UNREACHABLE:
            # An outage after the start is the broker's trouble. Siblings may be busy for hours yet, so wait it out.
            return Respawn(_BACKOFF.delay(SHORT_LIMIT, jitter), history)
        history = history._replace(useless=history.useless + 1)
    elif ending.name not in _FROM_OUTSIDE and not useful:
        # Not healthy, however long it was in the group: it may have waited for the partition of the task that kills it.
        history = history._replace(useless=history.useless + 1)
    elif joined_for >= HEALTHY_SECONDS:
        history = History()
    else:
        history = history._replace(useless=0)
    history = history._replace(short=history.short + 1)
    least = 0 if joined_for is None else max_attempts + 2
    if history.useless >= max(USELESS_LIMIT, least) or history.short >= max(SHORT_LIMIT, least):
        return Halt(
            ExitCode.CRASH_LOOP,
            f"{history.short} in a row ended soon after their start, the last by {ending.name}",
        )
    return Respawn(_BACKOFF.delay(history.short, jitter), history)
