"""Tracks the requests that ``worker cancel`` wants to cancel. Pure."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING

from worker.state.table import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from worker.core.task_state import Origin
    from worker.state.table import Change


class Reach(enum.Enum):
    """The progress of a cancellation, in the words of the command."""

    ANSWERED = "answered already"
    NEVER_STARTED = "cancelled (never started)"
    CANCELLED = "cancelled"
    STOPPING = "asked to stop"
    OPEN = "not reached yet"


SETTLE = 1.0  # the answer to a request that was reached before it started comes within this time


class Cancellation:
    """Follows the requests through the state topic and the ack topic. ``now`` is monotonic seconds.

    A request is reached when a worker has removed the cancel request. A request that had not started was answered
    before that. So a request that has no answer a moment later is running.
    """

    def __init__(self, origins: Iterable[Origin], answered: Collection[Origin]) -> None:
        self.reach = {origin: Reach.ANSWERED if origin in answered else Reach.OPEN for origin in origins}
        self._open = {origin for origin in self.reach if origin not in answered}
        self._removed: dict[Origin, float] = {}  # when each was seen to be reached

    @property
    def open(self) -> list[Origin]:
        """Return the requests that may still change."""
        return [origin for origin in self.reach if origin in self._open]

    def answer(self, origin: Origin, outcome: str, attempt: int) -> None:
        """Record an answer. ``attempt`` is the number of starts of the handler. The first answer counts."""
        if origin not in self._open:
            return
        if outcome != "CANCELLED":
            self._settle(origin, Reach.ANSWERED)
        else:
            self._settle(origin, Reach.CANCELLED if attempt else Reach.NEVER_STARTED)

    def change(self, change: Change, now: float) -> None:
        """Record a change on the state topic that is younger than the cancel request."""
        if change.kind is Kind.REACHED and change.origin in self._open:
            self._removed.setdefault(change.origin, now)

    def answers_read(self, until: float) -> None:
        """Record that all answers written before ``until`` were read: requests reached well before that still run."""
        due = [origin for origin, at in self._removed.items() if at <= until - SETTLE]
        for origin in due:
            self._settle(origin, Reach.STOPPING)

    def close(self) -> None:
        """Record that nothing more is read: requests that were reached count as such."""
        self.answers_read(math.inf)

    def _settle(self, origin: Origin, reach: Reach) -> None:
        self.reach[origin] = reach
        self._open.discard(origin)
        self._removed.pop(origin, None)
