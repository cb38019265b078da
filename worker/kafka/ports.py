"""The interfaces of the Kafka clients. The confluent adapters and the fake broker both implement them.

Every method except the transactor's is called from the poll thread. Every callback runs inside one of these calls: on
that thread, or, in ``Consumer.close``, on one that it waits for. A callback may raise: the adapter keeps the first
exception and raises it when the client's call has returned, because an exception thrown through the client loses
records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from worker.core.model import Headers, Partition, PartitionEnd, Record


# The group no longer knows this member, or has given its partitions to another: its commits are refused.
FENCED_CODES = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID"})
# The coordinator answers, and does not accept commits of this member now.
MEMBERSHIP_CODES = FENCED_CODES | {"ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH", "REBALANCE_IN_PROGRESS"}


class KafkaFailure(NamedTuple):
    """An error of the client."""

    code: str  # the error's name, such as ``MSG_SIZE_TOO_LARGE`` or ``_TIMED_OUT``
    message: str
    retriable: bool = False
    topic: str = ""  # that did not accept a record, if known

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Position(NamedTuple):
    """The committed position of a group in a partition."""

    offset: int
    metadata: str = ""  # this client allows at most 4,095 characters


class Message(NamedTuple):
    """A record to write."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Handshake(NamedTuple):
    """How to commit the answer to a detached task: write the mark first, then check who holds the task.

    ``mark`` is committed for the partition in ``group``. ``is_held`` gets the position of the partition in the workers'
    group.
    """

    group: str
    partition: Partition
    mark: Position
    is_held: Callable[[Position | None], bool]


class Transaction(NamedTuple):
    """Answers and their positions. Readers see all of them or none.

    A transaction with a ``handshake`` has no positions. It is committed only if the task is still held when its mark is
    pending.
    """

    messages: Sequence[Message]
    positions: Mapping[Partition, Position]
    member: object  # ``Consumer.membership`` when the leases of these partitions were valid
    handshake: Handshake | None = None
    one_by_one: bool = False  # each message in a separate batch, which is slow but shows which one is refused


class Ended(NamedTuple):
    """How a transaction ended. If it was not committed, ``failure`` is the reason, and it may be repeated.

    If ``superseded``, another process has taken over the detached task, and it must not be repeated.
    """

    committed: bool
    failure: KafkaFailure | None = None
    superseded: bool = False


class MemberView(NamedTuple):
    """A member of the group, as the coordinator describes it."""

    client_id: str
    partitions: Collection[Partition]


class Deliveries(NamedTuple):
    """The results of produced records, by the tokens with which they were produced."""

    confirmed: list[object]
    failed: list[tuple[object, KafkaFailure]]


class RebalanceListener(Protocol):
    """Receives the consumer's events about partitions, inside ``poll`` or ``close``."""

    def ready(self, partitions: Sequence[Partition]) -> bool:
        """Return whether committed offsets may be read for these new partitions.

        Return False while something is under way that could still commit for an earlier lease, or while the states of
        their tasks are not known yet. The consumer asks again in its next ``poll``.
        """

    def assigned(self, positions: Mapping[Partition, Position | None]) -> Mapping[Partition, int] | None:
        """Handle an assignment. The partitions are not paused.

        ``positions`` is what the group has committed (None: nothing yet). Return the offsets to start with instead, if
        any. Return None if they are not known yet: then nothing has started, and the consumer tries again.
        """

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Handle a revocation.

        The partitions stay with this member and can be committed until ``Consumer.release`` was called for all of them.
        Inside ``close`` they are gone when this call returns.
        """

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Handle lost partitions. They may already run elsewhere, so nothing of them may be committed."""


class CommitListener(Protocol):
    """Receives the results of commits, inside ``poll`` or ``commit``."""

    def committed(self, positions: Mapping[Partition, Position], failure: KafkaFailure | None) -> None:
        """Handle the reply to ``commit``. A failed commit may still have been applied."""


class Consumer(Protocol):
    """One member of the consumer group."""

    @property
    def protocol(self) -> str:
        """Return the group protocol in use: ``consumer`` or ``classic``."""

    @property
    def member_id(self) -> str:
        """Return the id of this member in the group; empty before it has joined and after ``close`` has left it.

        After a ``close`` that could not leave, another process has to remove this member.
        """

    @property
    def stale(self) -> bool:
        """Return whether the member must leave and join again.

        It has missed a rebalance permanently, was removed, or has sent a commit that may undo later ones.
        """

    def subscribe(self, topics: Sequence[str], partitions: RebalanceListener, commits: CommitListener) -> None:
        """Join the group."""

    def give_way(self, topic: str) -> bool:
        """Let the group give every partition to other members, while this one stays a member.

        The member subscribes only to ``topic``, whose records it never returns. ``revoked`` follows for assigned
        partitions. Return False if this is not possible now. Do not call it inside a callback.
        """

    def take_part(self) -> None:
        """Take partitions again after ``give_way``. Do not call it inside a callback."""

    def poll(self, limit: int, timeout: float) -> list[Record | PartitionEnd]:
        """Return up to ``limit`` records. Wait at most ``timeout`` seconds for the first; add only available ones.

        The list contains a ``PartitionEnd`` when the consumer has reached the end of a partition.

        Raise ``ClientFatalError`` when the client cannot continue.
        """

    def release(self, partitions: Sequence[Partition]) -> None:
        """Give revoked partitions back. Others may own them once all of the same revocation are released."""

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Stop fetching these. The client drops their fetched records and fetches them again later."""

    def resume(self, partitions: Sequence[Partition]) -> None:
        """Fetch these again. The first record may take a second."""

    def end(self, partition: Partition) -> int:
        """Return the end of a partition as the client last heard it (-1: never). No request is sent."""

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Send a commit. The reply arrives through ``CommitListener.committed``, inside a later ``poll``."""

    def coordinator_answers(self) -> bool:
        """Return whether the coordinator of the group replies within a second."""

    def membership(self) -> object:
        """Return the member and its generation of the group, for ``Transaction``."""

    def close(self) -> None:
        """Leave the group. ``revoked`` is called for partitions that are still assigned.

        Give up after 10 s without a reply from the coordinator, or at once if the client has lost all brokers.
        """


class GroupClient(Protocol):
    """Group requests for processes that share detached tasks. Its calls wait, so it is not for the poll thread."""

    def members(self, group: str) -> list[MemberView] | KafkaFailure:
        """Return the members of a group."""

    def committed(self, group: str, partition: Partition, *, stable: bool) -> Position | KafkaFailure | None:
        """Return what a group has committed for a partition; None if nothing.

        If ``stable``, return a failure while an open transaction may change it.
        """

    def commit(self, group: str, partition: Partition, position: Position) -> KafkaFailure | None:
        """Commit for a group without members."""

    def delete(self, group: str) -> KafkaFailure | None:
        """Delete a group without members."""


class Producer(Protocol):
    """An idempotent producer that retries without limit. A failed delivery is final and means unknown."""

    def produce(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, token: object) -> None:
        """Queue a record. A later ``deliveries`` reports its result once, under ``token``."""

    def deliveries(self, timeout: float) -> Deliveries:
        """Return the results so far. With a time-out, send the queue without lingering and wait that long for results.

        Raise ``ClientFatalError`` when the client cannot continue.
        """

    def close(self) -> None:
        """Give up queued records and free the client."""


class Transactor(Protocol):
    """A transactional producer. Its calls wait. Use it from one thread at a time, not necessarily the poll thread.

    ``called_at`` is the monotonic time at which its last client call began. Any thread may read it.
    """

    called_at: float

    def open(self) -> None:
        """Take the identity: end a transaction that an earlier process of this name left open.

        This waits during a broker outage. ``commit`` would do that too, but until then readers of the partitions in the
        open transaction would be blocked.
        """

    def commit(self, transaction: Transaction) -> Ended:
        """Write everything or nothing. Return when the result is certain; a broker outage delays that.

        Raise ``ClientFatalError`` when another producer has taken over this identity, or the client cannot continue.
        """

    def find_out(self, transaction: Transaction) -> Ended:
        """Determine how the transaction of an abandoned transactor of this name ended. Otherwise as ``commit``."""

    def close(self) -> None:
        """Free the client. A transaction under way is left to the broker."""
