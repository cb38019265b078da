"""What unit tests build their cases from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.core.lane import Lane
from worker.core.model import Headers, Partition, Record, Task

if TYPE_CHECKING:
    from worker.core.queues import Strand

PARTITION = Partition("requests", 3)


def a_task(
    value: bytes | None = b"\x08\x07\x12\x01x",
    *,
    key: bytes | None = b"k",
    headers: Headers = (),
    offset: int = 42,
    attempt: int = 0,
    lane: Lane | None = None,
    timestamp_ms: int = 0,
    strand: Strand | None = None,
) -> Task:
    """A task of a record; its value is the request (7, "x") unless another is given."""
    record = Record(PARTITION, offset, key, value, headers, timestamp_ms)
    return Task(record, lane or Lane(PARTITION, 1), attempt, strand)
