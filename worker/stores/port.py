"""What the worker asks of a database that holds results and offsets together.

A request is done when, in one transaction of the database, its result was written and the partition's next offset moved
behind it. Kafka's own committed offset is then only a hint. A database knows nothing of leases, so moving the offset is
also the fence: it only ever moves up, and whoever finds it already beyond his request has lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from worker.errors import ExitCode, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from worker.core.model import Partition


class StoreError(WorkerError):
    """The store cannot be used as it is set up. One line that says what to do; the others here are kinds of it."""

    exit_code = ExitCode.SETTINGS_INVALID


class StoreUnavailableError(StoreError):
    """The database does not answer, or not in time. Nothing is known to be done; to be tried again later.

    Out of ``commit`` it may have been applied nevertheless: then the next ``begin`` raises StaleOffsetError and
    ``answers`` has the result. A handler sees it too, out of statements on ``context.transaction``.
    """

    exit_code = ExitCode.PROCESS_CRASHED


class StaleOffsetError(StoreError):
    """The request is done already, by another process or by an earlier attempt: go on behind it.

    Its result, if it has one, comes from ``answers``.
    """


class RefusedError(StoreError):
    """The database refused what the handler did in the transaction, or its result: an attempt that failed."""


class StoredAnswer(NamedTuple):
    """What is needed to answer a request without running it again. The partition is known from where it is kept."""

    offset: int  # of the request
    key: bytes | None  # of the request
    result: bytes
    sequence: int
    attempt: int
    started_ns: int  # since the epoch
    finished_ns: int
    cpu_seconds: float


class StoreTransaction(Protocol):
    """The transaction of one attempt at one request, ended by ``commit`` or ``rollback``. Of the service thread."""

    @property
    def handle(self) -> Any:
        """What the handler gets as ``context.transaction``.

        To be read when the handler asks for it, not before: it may cost a connection. StoreUnavailableError if there is
        none; StoreError when the transaction has ended.
        """

    def commit(self, answer: StoredAnswer) -> None:
        """Write the result and the next offset, then commit all of it with what the handler wrote.

        StaleOffsetError if the request is done already, StoreUnavailableError if the database does not answer in time,
        RefusedError if it answers no. Whatever is raised, the transaction has ended and is rolled back where it can be.
        """

    def rollback(self) -> None:
        """Undo what the handler wrote. Never raises; does nothing after the end. Service thread."""


@runtime_checkable
class OffsetStore(Protocol):
    """A store of one consumer group, made in the worker process by ``factory(group)``.

    Used by two threads: ``begin`` and its transaction belong to the service thread, one at a time; the rest to the poll
    thread. Every call ends within a bounded time, with StoreUnavailableError if it must.
    """

    def positions(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The offset to go on from, for each of these partitions; those never seen are left out.

        Poll thread, inside the assignment.
        """

    def begin(self, partition: Partition, offset: int) -> StoreTransaction:
        """A transaction for the request at this offset. Service thread.

        StaleOffsetError if it is done already: nobody should work an hour to hear that at the end.
        """

    def skip(self, partition: Partition, offset: int) -> None:
        """Move behind a request that ended without a result (buried, expired). Poll thread.

        Does nothing if the store is already beyond.
        """

    def answers(self, partition: Partition, start: int, stop: int) -> Iterator[StoredAnswer]:
        """The results of requests from ``start`` up to, not including, ``stop``, in the order of offsets. Poll thread.

        For answers that a crash kept from Kafka. Holds a few results in memory at a time; errors come while iterating.
        """

    def close(self) -> None:
        """Give back all connections. Never raises. Poll thread, while the service thread has no transaction."""
