"""Formats long tasks for the commands. Pure: ``now`` is in seconds since the epoch."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from rich.text import Text

from worker.core.task_state import RUNNING, WAITING
from worker.state.records import HEARTBEAT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.core.task_state import TaskState

SILENT = "silent"  # shown instead of the state of a task whose heartbeats have stopped
SILENT_AFTER = 3 * HEARTBEAT_SECONDS  # seconds without a record

_NANOS = 1e9
_STYLES = {SILENT: "red", "cancelling": "yellow", "detached": "cyan"}


def running(states: Iterable[TaskState]) -> list[TaskState]:
    """Return the tasks that are running, the oldest first. The others wait for their next start."""
    return sorted((one for one in states if one.state != WAITING), key=lambda one: (one.started_ns, one.origin))


def silent_for(state: TaskState, now: float) -> float:
    """Return the seconds since the last record of a task."""
    return max(0.0, now - state.updated_ns / _NANOS)


def state_of(state: TaskState, now: float) -> str:
    """Return ``running``, ``cancelling``, ``waiting`` or ``detached``, or ``silent`` after ``SILENT_AFTER``."""
    quiet = state.state != WAITING and silent_for(state, now) > SILENT_AFTER
    return SILENT if quiet else state.state


def seconds_of(state: TaskState, now: float) -> float:
    """Return the run time of its attempt in seconds."""
    return max(0.0, now - state.started_ns / _NANOS)


def key_of(state: TaskState) -> str | None:
    """Return the key of the request as text; None if it has none."""
    return state.key.decode(errors="backslashreplace") if state.key else None


def as_json(state: TaskState, now: float) -> dict[str, Any]:
    """Return a task as ``worker tasks --json`` prints it."""
    started = dt.datetime.fromtimestamp(state.started_ns / _NANOS, dt.UTC)
    return {
        "origin": state.origin._asdict(),
        "key": key_of(state),
        "sequence": state.sequence,
        "worker": state.worker,
        "attempt": state.attempt,
        "started_at": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "seconds": round(seconds_of(state, now), 3),
        "progress": state.progress,
        "message": state.message,
        "state": state_of(state, now),
    }


# ---------------------------------------------------------------- for people


def style_of(shown: str) -> str:
    """Return the colour of a state; none for the usual one."""
    return _STYLES.get(shown, "")


def message_of(state: TaskState, now: float) -> Text:
    """Return the message in one line, after the state if that is not ``running``."""
    shown = state_of(state, now)
    notice = "" if shown == RUNNING else shown
    if shown == SILENT:
        notice = f"silent: no heartbeat for {lasting(silent_for(state, now))}"
    message = " ".join(state.message.split())
    return Text.assemble((notice, style_of(shown)), "; " if notice and message else "", (message, "dim"))


def percent(progress: float | None) -> str:
    """Return whole percent, 100 only at the end; empty without progress."""
    return "" if progress is None else f"{int(progress * 100)}%"


def lasting(seconds: float) -> str:
    """Return a duration in at most seven characters: ``42 s``, ``12:03``, ``3:07:00``, ``9d 13h``, ``120d``."""
    whole = int(seconds)
    if whole < 60:  # noqa: PLR2004 - seconds of a minute
        return f"{whole} s"
    minutes, hours = whole // 60, whole // 3600
    if not hours:
        return f"{minutes}:{whole % 60:02}"
    if hours < 24:  # noqa: PLR2004 - hours of a day
        return f"{hours}:{minutes % 60:02}:{whole % 60:02}"
    days = hours // 24
    return f"{days}d {hours % 24}h" if days < 100 else f"{days}d"  # noqa: PLR2004 - two digits
