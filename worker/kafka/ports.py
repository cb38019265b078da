"""The few calls the worker makes on Kafka. The confluent adapters and the fake broker both implement them.

Every method is called from the poll thread only (the transactor's apart), and every callback runs on that thread,
inside one of these calls. A callback may raise: the consumer's adapter keeps the first exception until the client's
call has returned and raises it then, because an exception thrown through the client loses records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.core.model import End, Headers, Partition, Record


class KafkaFailure(NamedTuple):
    """What the client said went wrong."""

    code: str  # the name, such as ``MSG_SIZE_TOO_LARGE`` or ``_TIMED_OUT``
    message: str
    retriable: bool = False

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Position(NamedTuple):
    """Where a group stands in a partition, and what its members noted there for each other."""

    offset: int
    notes: str = ""  # the commit's metadata: at most 4,095 characters from this client


class Message(NamedTuple):
    """A record to be written."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Transaction(NamedTuple):
    """Answers and the positions that go with them: all of it is seen, or nothing."""

    messages: Sequence[Message]
    positions: Mapping[Partition, Position]
    member: object  # ``Consumer.membership`` when the leases of these partitions were valid


class Ended(NamedTuple):
    """How a transaction ended: committed, or not at all; then ``failure`` says why and it may be tried again."""

    committed: bool
    failure: KafkaFailure | None = None


class Deliveries(NamedTuple):
    """What became of produced records, named by the tokens they were produced with."""

    confirmed: list[object]
    failed: list[tuple[object, KafkaFailure]]


class Listener(Protocol):
    """What the consumer tells its owner, from inside ``poll``, ``commit_now`` or ``close``."""

    def assigned(self, positions: Mapping[Partition, Position | None]) -> Mapping[Partition, int]:
        """These partitions are ours from now on, under a new lease. They start unpaused.

        ``positions`` is what the group has committed (None: nothing yet). Returns the offsets to begin with instead,
        if any.
        """

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """These partitions go elsewhere when this call returns; until then they can still be committed."""

    def lost(self, partitions: Sequence[Partition]) -> None:
        """These partitions are gone and may already run elsewhere: nothing of theirs may be committed."""

    def committed(self, positions: Mapping[Partition, Position], failure: KafkaFailure | None) -> None:
        """The answer to ``commit``. A failure means unknown, not undone."""


class Consumer(Protocol):
    """One member of the consumer group.

    ``stale``: the group has given it or taken from it what it was not told of and will not be told of any more, or has
    given it up. It has to leave and to join anew.
    """

    @property
    def stale(self) -> bool: ...

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group."""

    def poll(self, limit: int, timeout: float) -> list[Record | End]:
        """Up to ``limit`` records: wait at most ``timeout`` seconds for the first, take the rest only if there.

        Among them, wherever a partition's end was reached, that end.

        Raises ``ClientFatalError`` when the client cannot go on.
        """

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Stop fetching these; records already fetched are thrown away and fetched again later."""

    def resume(self, partitions: Sequence[Partition]) -> None:
        """Fetch these again; the first record may take a second."""

    def end(self, partition: Partition) -> int:
        """Where a partition ends, as the client has last heard (-1: it has not). Asks nobody."""

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Send a commit; the answer comes by ``Listener.committed`` inside a later ``poll``."""

    def commit_now(self, positions: Mapping[Partition, Position]) -> KafkaFailure | None:
        """Commit and wait for the answer. Has no time-out: it lasts as long as the broker is away."""

    def membership(self) -> object:
        """Who this member is in which generation of the group, for ``Transaction``."""

    def close(self) -> None:
        """Leave the group. ``revoked`` is called for what is still assigned."""


class Producer(Protocol):
    """An idempotent producer that retries for ever; a failed delivery is final and means unknown."""

    def produce(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, token: object) -> None:
        """Queue a record. What becomes of it is told under ``token`` by a later ``deliveries``, once."""

    def deliveries(self, timeout: float) -> Deliveries:
        """What is known by now. With a time-out: send what is queued, lingering no longer, and wait that long for it.

        Raises ``ClientFatalError`` when the client cannot go on.
        """

    def close(self) -> None:
        """Give up what is queued and free the client."""


class Transactor(Protocol):
    """A transactional producer. One thread at a time, which need not be the poll thread: its calls wait.

    ``called_at`` is the monotonic time at which its last call of the client began; any thread may read it.
    """

    called_at: float

    def open(self) -> None:
        """Take the identity: end what a former process of this name has left open. Waits while the broker is away.

        ``commit`` would do that too, but the partitions of what was left open stand still until then.
        """

    def commit(self, transaction: Transaction) -> Ended:
        """Write it all, or nothing; returns when that is certain, which an outage of the broker may delay.

        Raises ``ClientFatalError`` when another producer has taken over this one's identity, or the client cannot go
        on.
        """

    def find_out(self, transaction: Transaction) -> Ended:
        """How a transaction ended that another transactor of this name, given up since, has begun. As ``commit``."""

    def close(self) -> None:
        """Free the client; a transaction under way is left to the broker."""
