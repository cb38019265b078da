"""When to commit: at once when answers are rare, every few milliseconds when they stream, and sometimes when idle."""

from __future__ import annotations

GAP = 0.05  # seconds between commits while answers stream; each commit contains everything settled in between
ANSWER_SECONDS = 60.0  # after this long without a reply, a commit may never get one
KEEP_ALIVE = 3600.0  # seconds after which the same offsets are committed again, so that they do not expire
# While a revoked partition is held, only a commit can show that the group has removed this member.
HOLD_KEEP_ALIVE = 30.0
RETRY = 0.5  # seconds after a failed commit


class CommitPolicy:
    """Allow one commit at a time. Settled answers wait for ``every`` of them, or for ``interval`` seconds at most."""

    __slots__ = ("_answer_by", "_every", "_interval", "_kept_at", "_not_before", "_settled", "_since", "in_flight")

    def __init__(self, now: float, *, every: int = 1, interval: float = 5.0) -> None:
        self.in_flight = False
        self._every = every
        self._interval = interval
        self._not_before = 0.0
        self._answer_by = 0.0
        self._kept_at = now
        self._settled = 0  # answers since the last commit
        self._since = now  # when the first of them was settled

    def settled(self, now: float, count: int = 1) -> None:
        """Record that ``count`` more answers were confirmed."""
        if not self._settled:
            self._since = now
        self._settled += count

    def due(self, now: float, *, hurry: bool = False) -> bool:
        """Return whether settled answers may be committed now. In a ``hurry`` do not wait for more of them."""
        if self.in_flight or now < self._not_before:
            return False
        return hurry or not 0 < self._settled < self._every or now - self._since >= self._interval

    def urgent(self, now: float) -> bool:
        """Return whether a commit that a task waits for may be sent now."""
        return not self.in_flight and now >= self._not_before - GAP

    def keep_alive_due(self, now: float, *, holding: bool = False) -> bool:
        """Return whether to commit the committed offsets again. ``holding`` means that a revoked partition is held."""
        return not self.in_flight and now - self._kept_at >= (HOLD_KEEP_ALIVE if holding else KEEP_ALIVE)

    def sent(self, now: float) -> None:
        """Record that a commit was sent."""
        self.in_flight = True
        self._not_before = now + GAP
        self._answer_by = now + ANSWER_SECONDS
        self._kept_at = now
        self._settled = 0

    def overdue(self, now: float) -> bool:
        """Return whether the reply to the commit is overdue."""
        return self.in_flight and now >= self._answer_by

    def wait_longer(self, now: float) -> None:
        """Check again later, because the broker is unavailable."""
        self._answer_by = now + ANSWER_SECONDS / 2

    def answered(self, now: float, *, failed: bool) -> None:
        """Record that the reply has arrived."""
        self.in_flight = False
        if failed:
            self._not_before = now + RETRY
