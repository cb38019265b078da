"""One budget of time, spent by each step of a shutdown or revoke in turn."""

from __future__ import annotations

import math


class Deadline:
    """A point in monotonic time; ``now`` is passed in."""

    __slots__ = ("at",)

    def __init__(self, at: float = math.inf) -> None:
        self.at = at

    @classmethod
    def after(cls, seconds: float, now: float) -> Deadline:
        """The deadline ``seconds`` from ``now``."""
        return cls(now + seconds)

    def remaining(self, now: float) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.at - now)

    def passed(self, now: float) -> bool:
        """Whether the time is up."""
        return now >= self.at
