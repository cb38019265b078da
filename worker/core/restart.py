"""What happens after a worker process ends: a restart after a delay, or the end of the replica."""

from __future__ import annotations

import signal
from typing import NamedTuple

from worker.core.retry import RetryPolicy
from worker.errors import ExitCode

USELESS_LIMIT = 5  # crashes in a row before joining the group or before the first answer
SHORT_LIMIT = 20  # crashes in a row soon after joining; with the back-off between them this takes minutes
HEALTHY_SECONDS = 10.0  # after this long in the group, earlier crashes are forgotten

# The first delay is short, because a single kill means little.
_BACKOFF = RetryPolicy(max_attempts=SHORT_LIMIT, first=0.2, greatest=30.0)
_CODE_NAMES = {code: code.name.lower() for code in ExitCode if code is not ExitCode.SUPERVISOR_CRASHED}
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", _CODE_NAMES[ExitCode.DRAINED])  # stopped on purpose
_HOPELESS = (ExitCode.SETTINGS_INVALID, ExitCode.HANDLER_UNLOADABLE)


class Ending(NamedTuple):
    """How a process ended. ``name`` is for logs and metrics; ``code`` is its exit code, or None after a signal."""

    name: str
    code: int | None = None


class History(NamedTuple):
    """How many processes of a slot ended in a row without doing anything useful, and since the last healthy one."""

    useless: int = 0
    short: int = 0


class Respawn(NamedTuple):
    """Start another process in the slot after ``after`` seconds."""

    after: float
    history: History


class Halt(NamedTuple):
    """Stop the replica with this exit code."""

    exit_code: ExitCode
    reason: str


def classify(status: int, *, out_of_memory: bool = False, stuck: bool = False) -> Ending:
    """Classify an ending. ``status`` is an exit code, or the negative number of a signal.

    ``out_of_memory`` means that the kernel has killed a process of this container since the last check. ``stuck`` means
    that the watchdog has killed this process. The status itself (SIGKILL) shows neither.
    """
    if status >= 0:
        return Ending(_CODE_NAMES.get(status, f"exit_{status}"), status)  # type: ignore[call-overload]
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
    explained: bool,
    useful: bool,
    jitter: float,
    max_attempts: int = 0,
) -> Respawn | Halt:
    """Decide what to do after a process ended. ``joined_for`` is its time in the group in seconds; None if it never
    joined.

    ``explained`` says whether the process gave a reason why it could not continue. ``useful`` says whether it answered
    a request. ``jitter`` in [0, 1] shortens the delay. One request may crash ``max_attempts`` processes before it
    becomes a dead letter, and the replica must survive that.
    """
    # A child may fail only after the join, and then gives a reason. A task that ends its process gives none.
    if ending.code in _HOPELESS and (joined_for is None or (explained and not useful)):
        return Halt(ExitCode(ending.code), "a worker process could not start")
    # The next two are no crashes. Peers may be busy with long tasks, so wait until the outage is over.
    if ending.code == ExitCode.STORE_UNREACHABLE:
        return Respawn(_BACKOFF.delay(SHORT_LIMIT, jitter), history)
    if ending.code == ExitCode.UNSTARTABLE:
        return Respawn(_BACKOFF.delay(USELESS_LIMIT, jitter), history)
    if joined_for is None:
        history = history._replace(useless=history.useless + 1)
    elif ending.name not in _FROM_OUTSIDE and not useful:
        # This does not count as healthy: the process may only have waited for the partition of the fatal request.
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
