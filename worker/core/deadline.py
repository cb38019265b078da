"""One budget of time for all steps of a shutdown or a revocation."""

from __future__ import annotations

import math


class Deadline:
    """A point in monotonic time. ``now`` is passed in."""

    __slots__ = ("at",)

    def __init__(self, at: float = math.inf) -> None:
        self.at = at

    @classmethod
    def after(cls, seconds: float, now: float) -> Deadline:
        """Return the deadline that is ``seconds`` after ``now``."""
        return cls(now + seconds)

    def remaining(self, now: float) -> float:
        """Return the seconds left, never below 0."""
        return max(0.0, self.at - now)

    def passed(self, now: float) -> bool:
        """Return whether the time is up."""
        return now >= self.at
