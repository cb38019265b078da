"""A transactor on the fake broker, with outcomes that a test scripts."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, cast

from worker.errors import ClientFatalError
from worker.kafka.ports import Ended, KafkaFailure

if TYPE_CHECKING:
    from worker.kafka.ports import Transaction
    from worker.testing.broker import FakeBroker
    from worker.testing.consumer import FakeConsumer


class Twist(NamedTuple):
    """The scripted outcome of a transaction: how long it takes, and why it fails, if it does."""

    seconds: float = 0.005
    failure: KafkaFailure | None = None
    fatal: bool = False
    applied: bool = False  # even if the error is fatal, when its owner does not learn it


class FakeTransactor:
    """See ``worker.kafka.ports.Transactor``. ``commit`` waits on the broker's clock, so it belongs in a fibre."""

    def __init__(self, broker: FakeBroker, group: str) -> None:
        self.twists: deque[Twist] = deque()
        self.transactions: list[tuple[Transaction, Ended]] = []  # all transactions that ended, in order
        self.closed = False
        self.called_at = float("inf")
        self._broker, self._group = broker, broker.group(group)

    def abort(self, code: str = "ILLEGAL_GENERATION", count: int = 1, seconds: float = 0.005) -> None:
        """Let the next transactions fail."""
        self.twists.extend([Twist(seconds, KafkaFailure(code, "scripted"))] * count)

    def take(self, seconds: float) -> None:
        """Set the duration of the next transaction."""
        self.twists.append(Twist(seconds))

    def fence(self, *, applied: bool = False) -> None:
        """Make the next transaction the last one of this transactor, whose owner does not learn how it ended."""
        self.twists.append(Twist(failure=KafkaFailure("_FENCED", "scripted"), fatal=True, applied=applied))

    def open(self) -> None:
        """See ``worker.kafka.ports.Transactor``."""

    def commit(self, transaction: Transaction) -> Ended:
        """See ``ports.Transactor``."""
        assert not self.closed
        twist = self.twists.popleft() if self.twists else Twist()
        done: list[KafkaFailure | None] = []
        self._broker.request(lambda: done.append(self.end(transaction, twist)), twist.seconds)
        self._broker.clock.wait(float("inf"), until=lambda: bool(done) or self.closed)
        if not done:
            raise ClientFatalError("closed while a transaction was under way")
        if twist.fatal:
            raise ClientFatalError(f"the transactional producer failed: {done[0]}")
        ended = Ended(done[0] is None, done[0])
        self.transactions.append((transaction, ended))
        return ended

    def find_out(self, transaction: Transaction) -> Ended:
        """See ``ports.Transactor``."""
        stands = self._group.committed
        committed = all(stands.get(partition) == at for partition, at in transaction.positions.items())
        return Ended(committed, None if committed else KafkaFailure("_TIMED_OUT", "scripted"))

    def close(self) -> None:
        """See ``ports.Transactor``."""
        self.closed = True

    def end(self, transaction: Transaction, twist: Twist) -> KafkaFailure | None:
        """Apply the transaction to the broker: everything at one moment, or nothing."""
        failure = twist.failure or self._refusal(transaction)
        if failure is None or twist.applied:
            self._apply(transaction)
        return failure

    def _refusal(self, transaction: Transaction) -> KafkaFailure | None:
        if transaction.handshake is None and not self._group.has(
            cast("FakeConsumer", transaction.member)
        ):  # the value of ``FakeConsumer.membership``
            return KafkaFailure("UNKNOWN_MEMBER_ID", "not in the group")
        for topic, key, value, headers in transaction.messages:
            found = self._broker.topics.get(topic)
            if found is None:
                return KafkaFailure("UNKNOWN_TOPIC_OR_PART", f"no topic {topic}", topic=topic)
            if found.too_large(key, value, headers):
                return KafkaFailure("MSG_SIZE_TOO_LARGE", f"more than {found.max_bytes} bytes")
        return None

    def _apply(self, transaction: Transaction) -> None:
        for topic, key, value, headers in transaction.messages:
            found = self._broker.topics[topic]
            found.append(found.place(key), key, value, tuple(headers), self._broker.clock())
        self._group.committed.update(transaction.positions)
