"""Tell whether a process whose main loop stands still is slow or stuck.

A handler that holds the interpreter lock for minutes stops the main loop while it works. A deadlock stops the loop too.
CPU time distinguishes the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

WORKING_SHARE = 0.05  # of a core, over a whole window
LONGEST_STEP = 2.0  # seconds that one check counts for at most, however long ago the previous one was


class Limits(NamedTuple):
    """Seconds without a turn of the loop and without CPU use after which a process counts as stuck."""

    boot: float = 300.0  # before the first turn, because a handler's import may download a model over a slow network
    turn: float = 60.0  # after the first turn


@dataclass(frozen=True, slots=True)
class Ok:
    """The loop is running, or has not stood still long enough to tell."""


@dataclass(frozen=True, slots=True)
class Slow:
    """The loop has stood still for ``seconds``, but the process uses CPU, so it works. Reported once per window."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stuck:
    """The loop has stood still for ``seconds``, and the process used no CPU in the last window."""

    seconds: float


class LivenessCheck:
    """Check one process. Only observed time counts, at most ``LONGEST_STEP`` seconds per check.

    So a process is not reported as stuck because the whole container was frozen (SIGSTOP, a suspended VM).
    """

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 - immutable
        self._limits = limits
        self._turns = 0
        self._last: float | None = None
        self._still = 0.0  # observed seconds since the last turn
        self._window = 0.0  # the part of them in the current window
        self._window_cpu = 0.0  # CPU seconds at its beginning

    def check(self, turns: int, cpu_seconds: float, now: float) -> Ok | Slow | Stuck:
        """Check once. ``cpu_seconds`` includes subprocesses; ``now`` is monotonic."""
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
