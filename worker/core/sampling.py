"""Limit the log lines per second and count those that are left out."""

from __future__ import annotations


class Sampler:
    """Let ``per_second`` lines through in each second."""

    __slots__ = ("_left", "_limit", "_second", "suppressed")

    def __init__(self, per_second: int) -> None:
        self._limit = per_second
        self._left = per_second
        self._second = 0
        self.suppressed = 0  # lines left out; reset it to 0 when they have been reported

    def allow(self, lines: int, second: int) -> int:
        """Return how many of these lines may be written in this second. The others are added to ``suppressed``."""
        if second != self._second:
            self._second = second
            self._left = self._limit
        allowed = min(lines, self._left)
        self._left -= allowed
        self.suppressed += lines - allowed
        return allowed
