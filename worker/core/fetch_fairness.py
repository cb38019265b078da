"""Keep a deep partition from starving a shallow one inside the client.

The client has one queue for all partitions. Records already fetched from a deep partition (thousands, or 4 MB) come
before records fetched later from a shallow one. Pausing a partition for a moment drops its records from the queue, so
that others get through. They are fetched again afterwards, so this is done rarely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.owned_partition import OwnedPartition

CHECK_SECONDS = 0.5  # between two checks
STARVED_SECONDS = (1.0, 10.0)  # how long a partition may starve: at first, and at most if it happens repeatedly
PAUSE_SECONDS = 1.0  # the longest pause of the others; if no record comes by then, there is none or the broker is slow
QUIET_FACTOR = 4  # after this many times the limit without starvation, the first limit applies again


class FetchFairness:
    """Decide when to pause the partitions that have their share, and for which others. Used on the poll thread."""

    def __init__(self) -> None:
        self._starved: dict[OwnedPartition, float] = {}  # partition -> since when
        self._favored: list[tuple[OwnedPartition, int]] = []  # what the pause is for, and the offsets before
        self._until = 0.0
        self._checked_at = 0.0
        self._limit = STARVED_SECONDS[0]

    def is_due(self, now: float) -> bool:
        """Return whether it is time to check which partitions starve."""
        return now - self._checked_at >= CHECK_SECONDS and not self._favored

    def check(self, starved: Sequence[OwnedPartition], now: float) -> None:
        """Record that these partitions have nothing to start although the client knows of more records."""
        self._checked_at = now
        self._starved = {owned: self._starved.get(owned, now) for owned in starved}
        if now - self._until > QUIET_FACTOR * self._limit:
            self._limit = STARVED_SECONDS[0]
        waiting = [owned for owned, since in self._starved.items() if now - since >= self._limit]
        if waiting:
            self._favored = [(owned, owned.next_offset) for owned in waiting]
            self._until = now + PAUSE_SECONDS
            self._limit = min(STARVED_SECONDS[1], 2 * self._limit)

    def pauses_others(self, now: float) -> bool:
        """Return whether the other partitions must pause now."""
        if self._favored and (now >= self._until or all(owned.next_offset > at for owned, at in self._favored)):
            self._favored, self._until = [], now
            self._starved.clear()
        return bool(self._favored)
