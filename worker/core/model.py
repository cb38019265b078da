"""Values that all other modules use: partitions, records, tasks and outcomes."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.core.claim import Claim
    from worker.core.ordering_group import OrderingGroup

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # the names that Kafka allows
Headers = tuple[tuple[str, bytes | None], ...]


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(slots=True)  # not frozen, because creation would take four times as long and every task has one
class Record:
    """One record of a request topic, as stored by the broker. Treat it as immutable."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0


def key_text(key: bytes | None) -> str | None:
    """Return the key of a record as text. Bytes that are not UTF-8 become hexadecimal escapes."""
    return None if key is None else key.decode(errors="backslashreplace")


class PartitionEnd(NamedTuple):
    """The consumer has reached ``offset``. There are only transaction markers after the last record."""

    partition: Partition
    offset: int


class Verdict(enum.Enum):
    """The result of one attempt."""

    OK = "ok"
    FAILED = "failed"  # may be attempted again
    REJECTED = "rejected"  # can never succeed: the handler rejected it, or it is not a request
    EXPIRED = "expired"  # its deadline passed before it started, or it failed after its deadline
    DONE = "done"  # another process has answered an earlier attempt; only the offset is left to settle
    DROPPED = "dropped"  # cancelled by a drain or a revocation: not answered, and no attempt used
    NOT_STARTED = "not_started"  # returned before it started: no attempt used
    CANCELLED = "cancelled"  # cancelled on request: answered as such, and not attempted again

    __hash__ = object.__hash__  # Enum's version is written in Python, and every task needs the hash


OK = Verdict.OK  # looking up a member of an Enum is slow


class Failure(NamedTuple):
    """Why an attempt failed, as reported in the answer."""

    type: str
    message: str
    traceback: str = ""


class FollowUp(NamedTuple):
    """A request that a handler sends with its answer. If ``topic`` is None, it goes to the first request topic."""

    topic: str | None
    key: bytes | None
    payload: str


class Task:
    """A request that this process works on: its record, its claim and its attempts so far."""

    __slots__ = ("attempt", "claim", "group", "progress", "record", "reported", "resume", "size", "upcoming")

    def __init__(self, record: Record, claim: Claim, attempt: int = 0) -> None:
        self.record = record
        self.claim = claim
        self.attempt = attempt  # attempts so far, including the running one
        self.group: OrderingGroup[Task] | None = None  # the tasks that must not overtake each other
        self.size = len(record.key or b"") + len(record.value or b"")  # bytes in memory
        if record.headers:
            self.size += sum([len(name) + len(value or b"") for name, value in record.headers])
        self.resume: bytes | None = None  # the checkpoint to resume from
        self.progress: tuple[float, str] | None = None  # fraction and message that the running attempt reported
        self.reported = False  # the running attempt has reported progress or a checkpoint
        self.upcoming: tuple[Record, ...] = ()  # requests that will probably start next, if the handler asked for them

    @property
    def offset(self) -> int:
        """Return the offset of the record."""
        return self.record.offset


@dataclass(slots=True)
class Outcome:
    """The outcome of one attempt, with the times for the answer.

    ``started_ns`` and ``finished_ns`` are in nanoseconds since the epoch. ``run_seconds`` is monotonic. ``cpu_seconds``
    covers the thread that ran the handler.
    """

    task: Task
    verdict: Verdict
    sequence: int = 0
    started_ns: int = 0
    result: bytes = b""
    failure: Failure | None = None
    retry_after: float | None = None
    finished_ns: int = 0
    run_seconds: float = 0.0
    cpu_seconds: float = 0.0
    sent: tuple[FollowUp, ...] = ()  # only of a successful attempt


def ages(outcomes: Iterable[Outcome], now_ns: int) -> list[float]:
    """Return the seconds since each of these attempts ended; 0 for one that never started."""
    return [
        (now_ns - finished_ns) / 1e9 if 0 < (finished_ns := outcome.finished_ns) < now_ns else 0.0
        for outcome in outcomes
    ]
