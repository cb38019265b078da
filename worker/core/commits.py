"""When to commit: at once when acks are rare, every few milliseconds when they stream, and now and then anyway."""

from __future__ import annotations

INTERVAL = 0.05  # seconds between commits while answers stream
KEEP_ALIVE = 3600.0  # seconds after which the same offsets are committed again, so that they never expire
RETRY = 0.5  # seconds after a failed commit


class CommitPolicy:
    """One commit under way at a time; the next carries all that was settled meanwhile."""

    __slots__ = ("_kept_at", "_not_before", "in_flight")

    def __init__(self, now: float) -> None:
        self.in_flight = False
        self._not_before = 0.0
        self._kept_at = now

    def due(self, now: float) -> bool:
        """Whether something new may be committed now."""
        return not self.in_flight and now >= self._not_before

    def keep_alive_due(self, now: float) -> bool:
        """Whether the committed offsets are to be committed once more."""
        return not self.in_flight and now - self._kept_at >= KEEP_ALIVE

    def sent(self, now: float) -> None:
        """A commit was sent."""
        self.in_flight = True
        self._not_before = now + INTERVAL
        self._kept_at = now

    def answered(self, now: float, *, failed: bool) -> None:
        """Its answer came."""
        self.in_flight = False
        if failed:
            self._not_before = now + RETRY
