"""Crash reports: the supervisor tells its processes through their status blocks about one that has died.

The reports arrive before the dead process is removed from the group, so before its partitions move. A report counts
for a partition only if the dead process wrote the start limit that the next owner finds: in between, the partition may
have had other owners, in other replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.core.crash import Crash
from worker.core.model import Partition, key_text
from worker.process.status_block import Activity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from worker.core.model import Task
    from worker.process.status_block import Start, StatusBlock


class CrashReport(NamedTuple):
    """The task that a process was running when it died. ``process`` is the token of that process."""

    process: str
    topic: str
    partition: int
    offset: int
    attempt: int


def report_of(process: str, start: Start, topics: Sequence[str]) -> CrashReport | None:
    """Return the report about a process that has just died.

    Return None if it has shown no token, or if its executor was idle or does not say what it ran. In that case a task
    that has just ended may be the cause and must not start again and again; the start limit tells which tasks may be
    affected.
    """
    if not process or start.activity is not Activity.RUNNING:
        return None
    return CrashReport(process, topics[start.topic], start.partition, start.offset, start.attempt)


def reports(status: StatusBlock) -> Mapping[str, CrashReport]:
    """Return the crash reports of the supervisor, by the tokens of the dead processes."""
    return {report.process: report for report in (CrashReport(*row) for row in status.crashes())}


def crash_of(report: CrashReport | None, partition: Partition) -> Crash | None:
    """Return what the report about a partition's previous owner says about this partition."""
    if report is None:
        return None
    if partition != Partition(report.topic, report.partition):
        return Crash(None)
    return Crash(report.offset, report.attempt)


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
