"""Building blocks for unit tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.core.lease import Lease
from worker.core.model import Headers, Partition, Record, Task

if TYPE_CHECKING:
    from worker.core.ordering_group import OrderingGroup

PARTITION = Partition("requests", 3)


def a_task(
    value: bytes | None = b"\x08\x07\x12\x01x",
    *,
    key: bytes | None = b"k",
    headers: Headers = (),
    offset: int = 42,
    attempt: int = 0,
    lease: Lease | None = None,
    timestamp_ms: int = 0,
    group: OrderingGroup[Task] | None = None,
) -> Task:
    """Return a task of a record. Its default value is the request (7, "x")."""
    record = Record(PARTITION, offset, key, value, headers, timestamp_ms)
    task = Task(record, lease or Lease(PARTITION), attempt)
    task.group = group
    return task


class Watch:
    """A replacement for the module ``time`` of a module under test. Its time passes only in ``work`` and ``sleep``."""

    def __init__(self) -> None:
        self._wall = 1_000.0  # seconds
        self._cpu = 50.0

    def work(self, seconds: float) -> None:
        """Let wall and CPU time pass."""
        self._wall += seconds
        self._cpu += seconds

    def sleep(self, seconds: float) -> None:
        """Let wall time pass, but no CPU time."""
        self._wall += seconds

    def time(self) -> float:
        return self._wall

    def time_ns(self) -> int:
        return int(self._wall * 1e9)

    def perf_counter(self) -> float:
        return self._wall

    def thread_time(self) -> float:
        return self._cpu
