"""The transaction thread on the fake clock, without a real thread, so that every run is the same."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from worker.kafka.ports import Ended
from worker.testing.transactor import FakeTransactor, Twist

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.core.model import Partition
    from worker.kafka.ports import Handshake, Position, Transaction
    from worker.testing.broker import FakeBroker


OPEN_SECONDS = 10.0  # the time-out of a transaction whose producer has died


class FakeTransactionThread:
    """See ``worker.process.transaction_thread.TransactionThread``."""

    def __init__(self, broker: FakeBroker, group: str) -> None:
        self.busy = False
        self.seconds = 0.005  # the duration of transactions from now on
        self.look_seconds = 0.005  # the same for each step of a handshake
        self.killed = False
        self._broker, self._transactor = broker, FakeTransactor(broker, group)
        self._group = broker.group(group)
        self._ending: Ended | None = None
        self.positions: Mapping[Partition, Position] = {}

    def send(self, transaction: Transaction) -> None:
        """Begin to commit this transaction."""
        self.busy, self._ending, self.positions = True, None, transaction.positions
        if transaction.handshake is None:
            self._broker.request(lambda: self._end(transaction), self.seconds)
        else:
            self._broker.request(functools.partial(self._mark, transaction, transaction.handshake), self.look_seconds)

    def _end(self, transaction: Transaction) -> None:
        failure = self._transactor.end(transaction, Twist())
        self._ending = Ended(failure is None, failure)

    def _mark(self, transaction: Transaction, handshake: Handshake) -> None:
        """Do the first step of a handshake: the mark is pending from now on."""
        if not self.killed:
            self._broker.group(handshake.group).pending[handshake.partition] += 1
            self._broker.request(functools.partial(self._look, transaction, handshake), self.look_seconds)

    def _look(self, transaction: Transaction, handshake: Handshake) -> None:
        if self.killed:
            self._broker.clock.after(OPEN_SECONDS, functools.partial(self._close, handshake))
            return
        held = handshake.is_held(self._group.committed.get(handshake.partition))
        self._broker.request(functools.partial(self._decide, transaction, handshake, held), self.look_seconds)

    def _decide(self, transaction: Transaction, handshake: Handshake, held: bool) -> None:  # noqa: FBT001
        if self.killed:
            self._broker.clock.after(OPEN_SECONDS, functools.partial(self._close, handshake))
            return
        self._close(handshake)
        if not held:
            self._ending = Ended(committed=False, superseded=True)
            return
        self._transactor.end(transaction, Twist())
        self._broker.group(handshake.group).set_committed("", {handshake.partition: handshake.mark})
        self._ending = Ended(committed=True)

    def _close(self, handshake: Handshake) -> None:
        self._broker.group(handshake.group).pending[handshake.partition] -= 1

    def ended(self, timeout: float) -> Ended | None:
        """Return how the transaction ended, waiting at most ``timeout`` seconds of the clock for it."""
        if self.busy and self._broker.clock.wait(timeout, until=lambda: self._ending is not None):
            self.busy = False
            return self._ending
        return None

    def close(self) -> None:
        """Do nothing: there is nothing to free."""
