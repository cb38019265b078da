"""How outcomes become answers: with deliveries that are confirmed one by one, or in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from worker.core.model import Failure, Outcome


class Settlement(Protocol):
    """``Answers`` or ``Transactions``. Poll thread."""

    answered: int  # requests whose answer is certain
    outstanding: int  # requests whose answer is under way
    outstanding_bytes: int  # what they hold in memory
    expelled: bool  # the group has given this member up: nothing can be settled before it has joined anew

    def ok(self, outcome: Outcome) -> None:
        """Answer with the handler's result; one that no record can hold goes to the dead letters."""

    def bury(self, outcome: Outcome, failure: Failure) -> None:
        """Dead letter, and the answer that tells of it."""

    def refuse(self, outcome: Outcome, failure: Failure, name: str) -> None:
        """Answer with ``EXPIRED`` or ``CANCELLED``."""

    def serve(self, timeout: float, now: float) -> None:
        """Take in what has become certain, waiting at most ``timeout`` seconds for it; do what is due."""

    def settle_down(self) -> None:
        """Wait until a commit outside of it can be made, for a while: partitions are given back."""

    def decided(self, timeout: float, now: float) -> bool:
        """Whether nothing is under way that commits by itself, after at most ``timeout`` seconds. Begins nothing."""

    def joined(self) -> None:
        """Partitions were assigned."""

    @property
    def busy(self) -> bool:
        """Whether no commit may be made outside of it now."""

    @property
    def under_way(self) -> bool:
        """Whether there is something to wait for."""

    def next_repeat(self) -> float:
        """When something is due by the clock (infinity: nothing is)."""
