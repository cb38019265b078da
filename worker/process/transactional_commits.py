"""Exactly once: commits of offsets alone, in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.kafka.ports import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.core.model import Partition
    from worker.kafka.ports import Consumer, Position
    from worker.process.transaction_thread import TransactionThread


class TransactionalCommits:
    """Send each commit as a transaction without messages. See ``CommitChannel``.

    The client repeats a request whose connection is lost, and says nothing about it. The first copy of a plain commit
    may arrive minutes later, from the buffers of the old connection, and set the position back behind answered
    requests. In a transaction such a copy is refused, because the producer has a new epoch after every disturbance.
    """

    def __init__(self, thread: TransactionThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """See ``CommitChannel``: ``TransactionalResponder`` passes the reply on. No transaction may be under way."""
        self._thread.send(Transaction((), positions, self._consumer.membership()))

    def coordinator_answers(self) -> bool:
        """See ``CommitChannel``: return False, because every transaction ends with a reply."""
        return False
