"""Tells the processes of the replica which task another one was running when it died."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from worker.core.lifecycle import State
from worker.process.crash_reports import report_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.process.config import ProcessConfig
    from worker.process.crash_reports import CrashReport
    from worker.supervisor.slots import ProcessHandle

_MOST_REPORTS = 64  # a partition finds its next owner long before that many processes have crashed


class Crashes:
    """The latest crash reports. Main thread."""

    def __init__(self) -> None:
        self._reports: deque[CrashReport] = deque(maxlen=_MOST_REPORTS)

    def process_ended(self, config: ProcessConfig, process: ProcessHandle) -> None:
        """Record what a crashed process was running. Call this before it is removed from its group."""
        if process.status_block.read_stamp().state >= State.CLOSED:
            return
        report = report_of(process.snapshot().get("token", ""), process.last_start, config.request_topics)
        if report is not None:
            self._reports.append(report)

    def tell(self, processes: Iterable[ProcessHandle]) -> None:
        """Write the reports into the status blocks of these processes."""
        for process in processes if self._reports else ():
            process.status_block.report_crashes(list(self._reports))
