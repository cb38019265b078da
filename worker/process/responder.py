"""The interface of responders, which turn outcomes into answers: confirmed one by one, or in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from worker.core.model import Failure, Outcome

MAX_UNCONFIRMED = 10_000  # answers being delivered; more would only use memory while the broker is unavailable
MAX_UNCONFIRMED_BYTES = 32 * 1024 * 1024


class Responder(Protocol):
    """Answers requests and settles them when their answers are confirmed. Used on the poll thread."""

    answered: int  # requests whose answer is confirmed
    outstanding: int  # requests whose answer is being delivered
    outstanding_bytes: int  # the memory that they take
    fenced: bool  # the group no longer knows this member: nothing can be settled before it has joined again

    def ok(self, outcome: Outcome) -> None:
        """Answer with the handler's result. If no record can hold it, the request becomes a dead letter."""

    def dead_letter(self, outcome: Outcome, failure: Failure) -> None:
        """Send a dead letter, and the answer that reports it."""

    def fail(self, outcome: Outcome, failure: Failure, name: str) -> None:
        """Answer with ``EXPIRED`` or ``CANCELLED``."""

    def serve(self, timeout: float, now: float) -> None:
        """Handle confirmations, waiting at most ``timeout`` seconds for them, and do what is due."""

    def assigned(self) -> None:
        """Record that partitions were assigned."""

    @property
    def busy(self) -> bool:
        """Return whether no other commit may be made now."""

    def quiesce(self) -> bool:
        """Return whether nothing is under way that may still commit offsets.

        If something is, nothing follows it before the next call, or for a second.
        """

    @property
    def under_way(self) -> bool:
        """Return whether it is useful to wait for the broker."""

    def next_due(self) -> float:
        """Return when something is due by the clock; infinity if nothing is."""

    def close(self) -> None:
        """Free the client."""


def held(outcome: Outcome) -> int:
    """Return the bytes that an outcome holds in memory."""
    size = outcome.task.size + len(outcome.result)
    return size + sum([len(follow_up.payload) for follow_up in outcome.sent]) if outcome.sent else size


def is_full(responder: Responder) -> bool:
    """Return whether the maximum number of answers is being delivered."""
    return responder.outstanding >= MAX_UNCONFIRMED or responder.outstanding_bytes >= MAX_UNCONFIRMED_BYTES
