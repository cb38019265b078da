"""The startup barrier: a replica starts its first tasks when its processes have joined and hold their shares.

Every process that joins moves partitions, and a moving partition has to wait for its running task. So a replica starts
its first tasks only when all of its processes have joined. The barrier applies only to the start of a replica.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_WAIT = 15.0  # seconds since the first process joined; a peer may take long to start
QUIET_SECONDS = 2.0  # seconds without a change: other replicas hold the remaining partitions for now


class PeerProcess(NamedTuple):
    """A process of this replica, as its stamp shows it."""

    joined: bool
    assigned: int


class StartupBarrier:
    """A barrier that opens once and stays open. ``now`` is in seconds, monotonic."""

    def __init__(self, partitions: int) -> None:
        self.open = False
        self._partitions = partitions  # of all request topics together
        self._first_joined = math.inf
        self._changed_at = -math.inf
        self._seen: list[PeerProcess] = []

    def update(self, peers: Sequence[PeerProcess], now: float) -> bool:
        """Return whether tasks may start, given the processes of this replica."""
        if list(peers) != self._seen:
            self._seen, self._changed_at = list(peers), now
        if any(peer.joined for peer in peers):
            self._first_joined = min(self._first_joined, now)
        self.open = (
            self.open
            or len(peers) == 1
            or now - self._first_joined >= LONGEST_WAIT
            or (all(peer.joined for peer in peers) and self._settled(peers, now))
        )
        return self.open

    def _settled(self, peers: Sequence[PeerProcess], now: float) -> bool:
        """Return whether the peers hold their final shares, as far as this replica can see."""
        counts = [peer.assigned for peer in peers]
        held = sum(counts)
        if self._partitions < len(counts):
            balanced = held == self._partitions
        else:
            balanced = min(counts) > 0 and max(counts) - min(counts) <= 1
        # The counts are uneven and some partitions are missing. Either other replicas hold them, maybe for as long as
        # their tasks run, or a partition is moving from one peer to another. Only time distinguishes the two.
        quiet = now - self._changed_at >= QUIET_SECONDS
        return balanced or (0 < held < self._partitions and quiet)
