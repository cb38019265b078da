"""Keeps the replica's reader of the state topic running, in a child process: the supervisor has no Kafka client.

A reader that ends is restarted. Its end affects no task: the worker processes connect again.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import structlog

from worker.supervisor.child import Child

if TYPE_CHECKING:
    from worker.state.config import ReaderConfig

RESTART_SECONDS = 1.0
END_SECONDS = 0.005  # between two looks at a process that was killed

log = structlog.get_logger("supervisor")


class StateReader:
    """Use it from the main thread. Without a configuration there is no reader."""

    def __init__(self, config: ReaderConfig | None) -> None:
        self._config = config
        self._child: Child | None = None
        self._start_at = 0.0

    @property
    def pids(self) -> list[int]:
        """Return the process, until its end has been seen."""
        return [] if self._child is None else [self._child.pid]

    def look(self, now: float) -> None:
        """Start the reader if it is not running, even if it has ended before. Call it on every turn."""
        if self._config is None:
            return
        if self._child is not None and (status := self._child.ended()) is not None:
            log.warning("states.reader_ended", pid=self._child.pid, status=status)
            self._child, self._start_at = None, now + RESTART_SECONDS
        if self._child is None and now >= self._start_at:
            self._start(now)

    def _start(self, now: float) -> None:
        try:
            self._child = Child("state-reader", "worker.state.reader:run", self._config)
        except OSError as error:  # the kernel is out of memory or process numbers
            log.warning("process.unstartable", slot=None, reason=str(error))
            self._start_at = now + RESTART_SECONDS

    def close(self) -> None:
        """End the reader, after the worker processes have ended."""
        if self._child is not None:
            self._child.signal(signal.SIGKILL)
            while self._child.ended() is None:
                time.sleep(END_SECONDS)
