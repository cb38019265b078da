"""Slow or stuck: what it means that a process's poll loop has stopped turning.

A handler that keeps the interpreter lock for minutes stops the poll loop and is doing what it was asked to do; a
dead-locked process stops it too. CPU time tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

WORKING_SHARE = 0.05  # of a core, over a whole window
LONGEST_STEP = 2.0  # seconds one look can count for, however long ago the last one was


class Limits(NamedTuple):
    """Seconds without a turn and without CPU until a process counts as stuck."""

    boot: float = 300.0  # before the first turn: a handler's import may fetch a model over a slow network
    turn: float = 60.0  # after it


@dataclass(frozen=True, slots=True)
class Ok:
    """The loop turns, or has not been still for long enough to judge."""


@dataclass(frozen=True, slots=True)
class Slow:
    """No turn for so many seconds, but CPU used: working. Said once per window."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stuck:
    """No turn for so many seconds and no CPU used over the last window."""

    seconds: float


class Watch:
    """The judgement over one process. Time is what was observed: a step counts for ``LONGEST_STEP`` at most.

    So when the whole container was frozen (SIGSTOP, a suspended VM), nobody is condemned for the time in which
    nobody could have turned.
    """

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 - immutable
        self._limits = limits
        self._turns = 0
        self._last: float | None = None
        self._still = 0.0  # observed seconds since the last turn
        self._window = 0.0  # of these, in the present window
        self._window_cpu = 0.0  # CPU seconds at its beginning

    def look(self, turns: int, cpu_seconds: float, now: float) -> Ok | Slow | Stuck:
        """Judge. ``turns`` as stamped, ``cpu_seconds`` of the process since its start, ``now`` monotonic."""
        step = 0.0 if self._last is None else min(now - self._last, LONGEST_STEP)
        self._last = now
        if turns != self._turns:
            self._turns, self._still = turns, 0.0
            self._begin_window(cpu_seconds)
            return Ok()
        self._still += step
        self._window += step
        limit = self._limits.turn if turns else self._limits.boot
        if self._window < limit:
            return Ok()
        working = cpu_seconds - self._window_cpu >= WORKING_SHARE * self._window
        self._begin_window(cpu_seconds)
        return Slow(self._still) if working else Stuck(self._still)

    def _begin_window(self, cpu_seconds: float) -> None:
        self._window, self._window_cpu = 0.0, cpu_seconds
