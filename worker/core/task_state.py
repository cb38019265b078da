"""The records of the state topic about one request: where a long task runs, and requests to cancel it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

from worker.core.model import Partition

CHECKPOINT_LIMIT = 1_000_000  # bytes; with the rest of the record this fits into Kafka's default max.message.bytes
HEARTBEAT_SECONDS = 10.0  # at most, between two records of a running task

RUNNING = "running"
CANCELLING = "cancelling"  # it was asked to stop and has not ended yet
WAITING = "waiting"  # it is not running; its checkpoint is kept for the next start
DETACHED = "detached"  # it is running although its partition has moved


class Origin(NamedTuple):
    """The identity of a request: its topic, partition and offset."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, partition: Partition, offset: int) -> Self:
        """Return the origin of the record at this offset of a partition."""
        return cls(partition.topic, partition.number, offset)

    @property
    def place(self) -> Partition:
        """Return the partition of the request topic."""
        return Partition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class TaskState:
    """A long task. Times are nanoseconds since the epoch.

    ``epoch`` is the number of the start, including starts that a drain ended. ``progress`` is from 0 to 1, or None.
    """

    origin: Origin
    worker: str
    epoch: int
    started_ns: int
    updated_ns: int
    attempt: int = 1
    key: bytes = b""
    sequence: int = 0
    progress: float | None = None
    message: str = ""
    checkpoint: bytes = b""
    state: str = RUNNING
    run: str = ""
    checkpoint_epoch: int = 0  # the start that saved the checkpoint; 0 if there is none

    @property
    def resume(self) -> bytes | None:
        """Return the checkpoint from which the next start resumes."""
        return self.checkpoint if self.checkpoint_epoch else None

    @property
    def made_checkpoint(self) -> bool:
        """Return whether this start has saved a checkpoint that differs from the one that it resumed from."""
        return self.checkpoint_epoch == self.epoch

    @property
    def start(self) -> tuple[int, int]:
        """Return which start of the request this record is about. A later start compares greater.

        Of two starts with the same number, the one with the later time is valid: the first was never announced before
        its process lost the partition.
        """
        return self.epoch, self.started_ns


class CancelRequest(NamedTuple):
    """A request to cancel. ``requested_ns`` is in nanoseconds since the epoch."""

    origin: Origin
    requested_ns: int = 0
    reason: str = "requested"
