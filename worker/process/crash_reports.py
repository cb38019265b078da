"""Crash reports: the supervisor tells its processes through their status blocks about one that has died.

A partition moves when the dead process has been removed from the group, and the reports arrive before that. They are
valid only for a short time: later the partition may have had other owners, in other replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.core.crash import Crash
from worker.core.model import Partition, key_text
from worker.process.status_block import Activity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from worker.core.model import Task
    from worker.process.status_block import Start, StatusBlock

VALID_SECONDS = 10.0


class CrashReport(NamedTuple):
    """The task that a process was running when it died at ``at`` (seconds since the epoch), and the partitions it
    owned.

    ``owned`` has the topics and numbers of all its partitions, not only that of the task.
    """

    at: float
    topic: str
    partition: int
    offset: int
    attempt: int
    owned: list[tuple[str, int]]


def report_of(start: Start, topics: Sequence[str], owned: Iterable[tuple[str, int]], now: float) -> CrashReport | None:
    """Return the report about a process that has just died.

    Return None if its executor was idle or does not say what it ran. In that case a task that has just ended may be the
    cause and must not start again and again; the start limit tells which tasks may be affected.
    """
    if start.activity is not Activity.RUNNING:
        return None
    return CrashReport(now, topics[start.topic], start.partition, start.offset, start.attempt, list(owned))


def valid(reports: Iterable[CrashReport], now: float) -> list[CrashReport]:
    """Return the reports of the last seconds before ``now``, in seconds since the epoch.

    A report from further ahead is older than it says: the clock was set back after it.
    """
    return [report for report in reports if abs(now - report.at) < VALID_SECONDS]


def crashes(status: StatusBlock, now: float) -> dict[Partition, Crash]:
    """Return what is known about the crash of the last owner, by partition. The latest report counts."""
    found: dict[Partition, Crash] = {}
    for report in valid((CrashReport(*row) for row in status.crashes()), now):
        found |= {Partition(topic, number): Crash(None) for topic, number in report.owned}
        found[Partition(report.topic, report.partition)] = Crash(report.offset, report.attempt)
    return found


class StartRecorder:
    """Write each start into the status block, on the executor's thread."""

    def __init__(self, status: StatusBlock, topics: Sequence[str]) -> None:
        self._status, self._write = status, status.started
        self._topics = {topic: number for number, topic in enumerate(topics)}
        status.idle()

    def started(self, task: Task, at_ns: int) -> None:
        """See ``Starts``."""
        record = task.record
        topic, number = record.partition
        self._write(self._topics[topic], number, task.attempt, record.offset, at_ns, record.key)

    def idle(self) -> None:
        """See ``Starts``."""
        self._status.idle()


def task_of(start: Start, topics: Sequence[str], pid: int) -> dict[str, Any]:
    """Return the running task in the form of the snapshot, as far as the start shows it."""
    return {
        "topic": topics[start.topic],
        "partition": start.partition,
        "offset": start.offset,
        "key": key_text(start.key),
        "sequence": None,
        "attempt": start.attempt,
        "detached": False,
        "started": round(start.at_ns / 1e9, 3),
        "pid": pid,
        "progress": None,
        "message": "",
    }
