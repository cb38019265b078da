"""The values everything else speaks of: partitions, records, tasks and what came of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.core.lane import Lane
    from worker.core.queues import Strand

Headers = tuple[tuple[str, bytes | None], ...]


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(slots=True)  # frozen, it would take four times as long to make: every task comes by it
class Record:
    """One record of a request topic, as the broker keeps it. Nobody changes it."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0


class End(NamedTuple):
    """All records before ``offset`` have been given out; between the last of them and it lie only markers."""

    partition: Partition
    offset: int


class Verdict(enum.Enum):
    """What one start of a task came to."""

    OK = "ok"
    FAILED = "failed"  # an attempt that may be repeated
    REJECTED = "rejected"  # can never succeed: the handler said so, or the bytes are no request
    EXPIRED = "expired"  # its deadline had passed before it could start, or it failed after it
    DONE = "done"  # was done and answered before, by another process; nothing is left to do but to settle it
    DROPPED = "dropped"  # cancelled by drain or revoke: no answer, no attempt used
    NOT_STARTED = "not_started"  # came back unstarted; no attempt used

    __hash__ = object.__hash__  # Enum's own is written in Python, and every task comes by it


OK = Verdict.OK  # for the way of every task: an Enum looks its members up slowly


class Failure(NamedTuple):
    """Why an attempt failed, as it will stand in the answer."""

    type: str
    message: str
    traceback: str = ""


class Task:
    """A request being worked on: a record, the lane (and so the lease) it came by, and its attempts so far."""

    __slots__ = ("attempt", "lane", "record", "size", "strand", "upcoming")

    def __init__(self, record: Record, lane: Lane, attempt: int = 0, strand: Strand | None = None) -> None:
        self.record = record
        self.lane = lane
        self.attempt = attempt  # starts so far, the running one included
        self.strand = strand  # the tasks it must not overtake and that must not overtake it, if any
        self.size = len(record.key or b"") + len(record.value or b"")  # bytes it holds in memory
        self.upcoming: tuple[Record, ...] = ()  # what is likely to be started after it, if that was asked for


@dataclass(slots=True)
class Outcome:
    """What one start of a task came to, with the times the answer reports.

    ``started_ns`` and ``finished_ns`` are nanoseconds since the epoch, ``run_seconds`` is monotonic,
    ``cpu_seconds`` is of the thread that ran the handler.
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


def ages(outcomes: Iterable[Outcome], now_ns: int) -> list[float]:
    """Seconds since each of these attempts ended; 0 for one that was not even started."""
    return [
        (now_ns - finished_ns) / 1e9 if 0 < (finished_ns := outcome.finished_ns) < now_ns else 0.0
        for outcome in outcomes
    ]
