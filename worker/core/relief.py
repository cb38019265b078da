"""Turns among partitions where the client keeps them from being taken.

The client has one queue for all partitions. What it has fetched of a deep one (thousands of records, or 4 MB) stands in
it before what it fetches later of a shallow one. A partition that is paused for a moment lets go of what is there of
it, and the others come through; it is fetched again afterwards, which is why that is done rarely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.lane import Lane

LOOK_SECONDS = 0.5  # between two looks
PATIENCE = (1.0, 10.0)  # seconds that a lane is left waiting: at first, and at most when it happens again and again
RELIEF_SECONDS = 1.0  # that the others stand back, at most: then there was nothing to come, or the broker is slow
CALM = 4  # times the patience without a relief, and it is the first time again


class Relief:
    """When lanes that have their share stand back, and for whom. Poll thread."""

    def __init__(self) -> None:
        self._hungry: dict[Lane, float] = {}  # since when
        self._served: list[tuple[Lane, int]] = []  # for whom others stand back, and what had come of them before
        self._until = 0.0
        self._looked_at = 0.0
        self._patience = PATIENCE[0]

    def due(self, now: float) -> bool:
        """Whether it is time to look which lanes are hungry."""
        return now - self._looked_at >= LOOK_SECONDS and not self._served

    def look(self, hungry: Sequence[Lane], now: float) -> None:
        """These lanes have nothing to start, although the client knows of records of theirs."""
        self._looked_at = now
        self._hungry = {lane: self._hungry.get(lane, now) for lane in hungry}
        if now - self._until > CALM * self._patience:
            self._patience = PATIENCE[0]
        waiting = [lane for lane, since in self._hungry.items() if now - since >= self._patience]
        if waiting:
            self._served = [(lane, lane.seen) for lane in waiting]
            self._until = now + RELIEF_SECONDS
            self._patience = min(PATIENCE[1], 2 * self._patience)

    def under_way(self, now: float) -> bool:
        """Whether the others stand back now."""
        if self._served and (now >= self._until or all(lane.seen > seen for lane, seen in self._served)):
            self._served, self._until = [], now
            self._hungry.clear()
        return bool(self._served)
