"""The few calls the worker makes on Kafka. The confluent adapters and the fake broker both implement them.

Every method is called from the poll thread only, and every callback runs on that thread, inside one of these calls.
A callback may raise: the consumer's adapter keeps the first exception until the client's call has returned and raises
it then, because an exception thrown through the client loses records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.core.model import Headers, Partition, Record


class KafkaFailure(NamedTuple):
    """What the client said went wrong."""

    code: str  # the name, such as ``MSG_SIZE_TOO_LARGE`` or ``_TIMED_OUT``
    message: str
    retriable: bool = False

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Deliveries(NamedTuple):
    """What became of produced records, named by the tokens they were produced with."""

    confirmed: list[object]
    failed: list[tuple[object, KafkaFailure]]


class Listener(Protocol):
    """What the consumer tells its owner, from inside ``poll``, ``commit_now`` or ``close``."""

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """These partitions are ours from now on, under a new lease. They start unpaused."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """These partitions go elsewhere when this call returns; until then they can still be committed."""

    def lost(self, partitions: Sequence[Partition]) -> None:
        """These partitions are gone and may already run elsewhere: nothing of theirs may be committed."""

    def committed(self, offsets: Mapping[Partition, int], failure: KafkaFailure | None) -> None:
        """The answer to ``commit``. A failure means unknown, not undone."""


class Consumer(Protocol):
    """One member of the consumer group."""

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group."""

    def poll(self, limit: int, timeout: float) -> list[Record]:
        """Up to ``limit`` records: wait at most ``timeout`` seconds for the first, take the rest only if there.

        Raises ``ClientFatalError`` when the client cannot go on.
        """

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Stop fetching these; records already fetched are thrown away and fetched again later."""

    def resume(self, partitions: Sequence[Partition]) -> None:
        """Fetch these again; the first record may take a second."""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Send a commit; the answer comes by ``Listener.committed`` inside a later ``poll``."""

    def commit_now(self, offsets: Mapping[Partition, int]) -> KafkaFailure | None:
        """Commit and wait for the answer. Has no time-out: it lasts as long as the broker is away."""

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
