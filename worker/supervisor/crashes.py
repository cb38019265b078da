"""Tells the processes of the replica which task another one was running when it died."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.core.lifecycle import State
from worker.process.crash_reports import report_of, valid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.process.config import ProcessConfig
    from worker.process.crash_reports import CrashReport
    from worker.supervisor.slots import ProcessHandle


class Crashes:
    """The crash reports of the last seconds. Main thread; ``now`` is in seconds since the epoch."""

    def __init__(self) -> None:
        self._reports: list[CrashReport] = []

    def process_ended(self, config: ProcessConfig, process: ProcessHandle, now: float) -> None:
        """Record what a crashed process was running. Call this before it is removed from its group."""
        if process.status_block.read_stamp().state >= State.CLOSED:
            return
        owned = [_place(name) for name in process.snapshot().get("partitions", {})]
        report = report_of(process.last_start, config.request_topics, owned, now)
        if report is not None:
            self._reports.append(report)

    def tell(self, processes: Iterable[ProcessHandle], now: float) -> None:
        """Write the reports that are still valid into the status blocks of these processes."""
        self._reports = valid(self._reports, now)
        for process in processes if self._reports else ():
            process.status_block.report_crashes(self._reports)


def _place(name: str) -> tuple[str, int]:
    """Return a partition from its name in the snapshot: ``topic[3]``."""
    topic, _, number = name.removesuffix("]").rpartition("[")
    return topic, int(number)
