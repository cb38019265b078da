"""Computes how fast long tasks make progress, from their records on the state topic. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.cli.progress import Look, Progress

if TYPE_CHECKING:
    from collections.abc import Collection

    from worker.core.task_state import Origin, TaskState

LEAST_SECONDS = 1.0  # of a rate: a task that reports as soon as it starts would seem to end at once
_NANOS = 1e9


class Estimate(NamedTuple):
    """``rate`` is the fraction done per second. ``left`` is the seconds until the end, 0 when due. None if unknown."""

    rate: float | None
    left: float | None


UNKNOWN = Estimate(None, None)


class Rates:
    """The rate of each task: over the last minute, or between its last two reports if that is longer."""

    def __init__(self) -> None:
        self._tasks: dict[Origin, _Start] = {}

    def add(self, state: TaskState) -> None:
        """Process a record of a task."""
        known = self._tasks.get(state.origin)
        if known is None or known.start != state.start:
            known = self._tasks[state.origin] = _Start(state)
        known.add(state)

    def keep(self, origins: Collection[Origin]) -> None:
        """Forget all tasks but these."""
        self._tasks = {origin: one for origin, one in self._tasks.items() if origin in origins}

    def of(self, origin: Origin, now: float) -> Estimate:
        """Return the estimate for a task. ``now`` is in seconds since the epoch."""
        task = self._tasks.get(origin)
        return UNKNOWN if task is None else task.estimate(now)


class _Start:
    """One start of a task."""

    def __init__(self, state: TaskState) -> None:
        self.start = state.start
        self._progress = Progress()
        self._last: Look | None = None
        if state.epoch <= 1:  # a later start may resume from a checkpoint at an unknown fraction
            self._take(Look(state.started_ns / _NANOS, 0.0, 1.0))

    def add(self, state: TaskState) -> None:
        """Process a record. If it reports no further progress, it only shows that the task is alive."""
        if state.progress is None or (self._last is not None and self._last.done == state.progress):
            return
        self._take(Look(state.updated_ns / _NANOS, state.progress, 1.0 - state.progress))

    def _take(self, look: Look) -> None:
        self._last = look
        self._progress.add(look)

    def estimate(self, now: float) -> Estimate:
        if self._last is None or self._progress.seconds < LEAST_SECONDS:
            return UNKNOWN
        if self._progress.rate is None or self._progress.rate <= 0:
            return UNKNOWN
        left = self._progress.remaining
        passed = now - self._last.at
        return Estimate(self._progress.rate, None if left is None else max(0.0, left - passed))
