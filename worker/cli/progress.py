"""The progress of a group or of one task between looks: rate and remaining time."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

WINDOW = 60.0  # seconds over which the rate is averaged


class Look(NamedTuple):
    """One moment: seconds on any clock, the work done by then, and the work left.

    For a group: requests committed and requests left. For a task: fractions.
    """

    at: float
    done: float
    lag: float


class Progress:
    """Rate and estimate from the looks of the last ``WINDOW`` seconds."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()

    def add(self, look: Look) -> None:
        """Add a look. Keep one that is older than the window, so that rare looks still give a rate."""
        self._looks.append(look)
        while len(self._looks) > 2 and self._looks[1].at <= look.at - WINDOW:  # noqa: PLR2004 - a rate needs two
            self._looks.popleft()

    @property
    def rate(self) -> float | None:
        """Return the work done per second; None before the second look."""
        first, last = self._looks[0], self._looks[-1]
        return (last.done - first.done) / (last.at - first.at) if last.at > first.at else None

    @property
    def seconds(self) -> float:
        """Return the time from the first look to the last one."""
        return self._looks[-1].at - self._looks[0].at

    @property
    def remaining(self) -> float | None:
        """Return the seconds left at this rate, from the last look; None if unknown. New requests are not predicted."""
        lag = self._looks[-1].lag
        if not lag:
            return 0.0
        return lag / self.rate if self.rate and self.rate > 0 else None
