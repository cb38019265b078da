"""A limit on log lines per second that counts what it leaves out."""

from __future__ import annotations


class Sampler:
    """Lets ``per_second`` lines through in each second."""

    __slots__ = ("_left", "_limit", "_second", "suppressed")

    def __init__(self, per_second: int) -> None:
        self._limit = per_second
        self._left = per_second
        self._second = 0
        self.suppressed = 0  # since ``taken`` last

    def allow(self, lines: int, second: int) -> int:
        """How many of these lines may be written in this second; the others are counted as left out."""
        if second != self._second:
            self._second = second
            self._left = self._limit
        allowed = min(lines, self._left)
        self._left -= allowed
        self.suppressed += lines - allowed
        return allowed

    def taken(self) -> int:
        """How many were left out since the last call."""
        suppressed, self.suppressed = self.suppressed, 0
        return suppressed
