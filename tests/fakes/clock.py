"""Time that passes only when somebody waits, so that hours take no time and nothing depends on the machine."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Call it for the time in seconds. What is due happens on the way, inside somebody's wait."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def __call__(self) -> float:
        return self._now

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something so many seconds from now."""
        heapq.heappush(self._events, (self._now + seconds, next(self._order), action))

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass until something holds, or the seconds are over; returns whether it holds."""
        end = self._now + seconds
        while not until():
            if not self._events or self._events[0][0] > end:
                assert end < math.inf, "this waits for ever: nothing is due any more"
                self._now = max(self._now, end)
                return until()
            when, _, action = heapq.heappop(self._events)
            # An action may wait as well, so that time is further on here than it was planned.
            self._now = max(self._now, when)
            action()
        return True
