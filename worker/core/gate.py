"""When a replica's first tasks may start: once its processes have joined the group and hold their share.

Every process that joins moves partitions. Tasks that run by then would have to be waited for, so at the start of a
replica they wait until its own processes have all come. This is for the replica's start only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_SECONDS = 15.0  # since the first process joined: other replicas may hold what would be our share
QUIET_SECONDS = 2.0  # without a change: what other replicas hold is theirs for now


class Sibling(NamedTuple):
    """A process of this replica, as its stamp shows it."""

    joined: bool
    assigned: int


class Gate:
    """Opens once and stays open. Fed with the siblings' stamps now and then; ``now`` is in seconds, monotonic."""

    def __init__(self, partitions: int) -> None:
        self.open = False
        self._partitions = partitions  # of all request topics together
        self._first_joined = math.inf
        self._changed_at = -math.inf
        self._seen: list[Sibling] = []

    def update(self, siblings: Sequence[Sibling], now: float) -> bool:
        """Whether tasks may start."""
        if list(siblings) != self._seen:
            self._seen, self._changed_at = list(siblings), now
        if any(sibling.joined for sibling in siblings):
            self._first_joined = min(self._first_joined, now)
        self.open = (
            self.open
            or len(siblings) == 1
            or now - self._first_joined >= PATIENCE_SECONDS
            or (all(sibling.joined for sibling in siblings) and self._settled(siblings, now))
        )
        return self.open

    def _settled(self, siblings: Sequence[Sibling], now: float) -> bool:
        """Whether the siblings hold what they will hold, as far as can be seen from here."""
        counts = [sibling.assigned for sibling in siblings]
        if self._partitions < len(counts):
            return sum(counts) == self._partitions
        if min(counts) == 0:
            return False
        balanced = max(counts) - min(counts) <= 1
        # Uneven and not all of them: other replicas hold some, or a partition is on its way from one sibling to
        # the next. Only time tells the two apart.
        return balanced or (sum(counts) < self._partitions and now - self._changed_at >= QUIET_SECONDS)
