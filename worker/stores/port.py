"""The interface of an offset store: a database that stores results and offsets together.

One database transaction writes the result of a request and moves the partition's next offset past it. Then the request
is done. The offset in Kafka is only a hint. A database has no leases, so the offset is also the fence: it only moves
up, and an attempt that finds it beyond its request has lost against another attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from worker.errors import ExitCode, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from worker.core.model import Partition


class StoreError(WorkerError):
    """The store cannot be used as configured. This ends the process. The message is one line that says what to do.

    The other errors of this module are subclasses. Any other exception from a store is a failed attempt of the task.
    """

    exit_code = ExitCode.SETTINGS_INVALID


class StoreUnavailableError(StoreError):
    """The database does not reply in time. The worker tries again later, and no attempt is used up.

    When ``commit`` raises it, the commit may have been applied. The next ``begin`` then raises StaleOffsetError, and
    ``answers`` has the result. Statements of a handler on ``context.transaction`` can raise it too.
    """

    exit_code = ExitCode.STORE_UNREACHABLE


class StaleOffsetError(StoreError):
    """Another process or an earlier attempt has completed the request. ``answers`` has its result, if there is one."""


class RefusedError(StoreError):
    """The database refused the handler's writes or the result: a failed attempt.

    If it refuses ``positions`` or ``skip`` although it worked before, the worker tries again later.
    """


class StoredAnswer(NamedTuple):
    """A stored result, with everything that an answer needs except the partition."""

    offset: int  # of the request
    key: bytes | None  # of the request
    result: bytes
    sequence: int
    attempt: int
    started_ns: int  # since the epoch
    finished_ns: int
    cpu_seconds: float


class StoreTransaction(Protocol):
    """The transaction of one attempt. ``commit`` or ``rollback`` ends it. Used on the executor's thread."""

    @property
    def handle(self) -> Any:
        """The object that the handler gets as ``context.transaction``.

        The worker reads it when the handler first uses it, because it may take a connection. Raises
        StoreUnavailableError if there is no connection, and StoreError when the transaction has ended.
        """

    def commit(self, answer: StoredAnswer) -> None:
        """Write the result and the next offset, and commit them together with the handler's writes.

        Raises StaleOffsetError if the request is already done, StoreUnavailableError if the database does not reply in
        time, and RefusedError if it refuses. After any error the transaction has ended, rolled back if possible.
        """

    def rollback(self) -> None:
        """Undo the handler's writes. Does nothing after the end. Never raises. Executor's thread."""


@runtime_checkable
class OffsetStore(Protocol):
    """The store of one consumer group. Each worker process creates one with ``factory(group)``.

    Two threads use it at the same time. The executor's thread calls ``begin``, uses its transaction, and calls
    ``answers`` after a StaleOffsetError. The poll thread calls everything but ``begin``. Every call ends in bounded
    time, if need be with StoreUnavailableError.
    """

    def positions(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return the next offset of each of these partitions, without those that the store has never seen. Poll thread.

        On StoreUnavailableError only the new partitions wait, and the worker calls again.
        """

    def begin(self, partition: Partition, offset: int) -> StoreTransaction:
        """Return a transaction for the request at this offset. Executor's thread.

        Raises StaleOffsetError if the request is already done, so that a long task does not run for nothing.
        """

    def skip(self, partition: Partition, offset: int) -> None:
        """Move past a request that ended without a result (dead-lettered or expired). Poll thread.

        Does nothing if the next offset is already beyond it.
        """

    def answers(self, partition: Partition, start: int, stop: int) -> Iterator[StoredAnswer]:
        """Yield the results of requests from ``start`` up to but not including ``stop``, by offset. Both threads.

        The worker uses them to send answers again that may be missing in Kafka. The iterator holds only a few results
        in memory, and may raise errors while it is iterated.
        """

    def close(self) -> None:
        """Close all connections. Never raises. Poll thread, while no transaction is open."""
