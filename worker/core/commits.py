"""When to commit: at once when acks are rare, every few milliseconds when they stream, and now and then anyway."""

from __future__ import annotations

GAP = 0.05  # seconds between commits while answers stream: each carries all that was settled meanwhile
KEEP_ALIVE = 3600.0  # seconds after which the same offsets are committed again, so that they never expire
RETRY = 0.5  # seconds after a failed commit


class CommitPolicy:
    """One commit under way at a time. Settled answers wait for ``every`` of them, ``interval`` seconds at most."""

    __slots__ = ("_every", "_interval", "_kept_at", "_not_before", "_settled", "_since", "in_flight")

    def __init__(self, now: float, *, every: int = 1, interval: float = 5.0) -> None:
        self.in_flight = False
        self._every = every
        self._interval = interval
        self._not_before = 0.0
        self._kept_at = now
        self._settled = 0  # answers since the last commit
        self._since = now  # when the first of them was settled

    def settled(self, now: float, count: int = 1) -> None:
        """So many more answers are certain."""
        if not self._settled:
            self._since = now
        self._settled += count

    def due(self, now: float, *, hurry: bool = False) -> bool:
        """Whether what was settled may be committed now; in a ``hurry`` it waits for nothing more to join it."""
        if self.in_flight or now < self._not_before:
            return False
        return hurry or not 0 < self._settled < self._every or now - self._since >= self._interval

    def urgent(self, now: float) -> bool:
        """Whether a commit that a task waits for may be sent now."""
        return not self.in_flight and now >= self._not_before - GAP

    def keep_alive_due(self, now: float) -> bool:
        """Whether the committed offsets are to be committed once more."""
        return not self.in_flight and now - self._kept_at >= KEEP_ALIVE

    def sent(self, now: float) -> None:
        """A commit was sent."""
        self.in_flight = True
        self._not_before = now + GAP
        self._kept_at = now
        self._settled = 0

    def answered(self, now: float, *, failed: bool) -> None:
        """Its answer came."""
        self.in_flight = False
        if failed:
            self._not_before = now + RETRY
