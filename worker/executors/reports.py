"""Progress and checkpoints that handlers report, on their way to the poll thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Task


class Report(NamedTuple):
    """The report of one attempt. ``progress`` is the fraction, from 0 to 1, and the message."""

    task: Task
    progress: tuple[float, str] | None
    checkpoint: bytes | None


class PendingReport:
    """An event: an attempt has reported something. Until the poll thread takes the report, later values replace it."""

    def __init__(self, task: Task, pending: dict[Task, PendingReport], lock: threading.Lock) -> None:
        self.progress: tuple[float, str] | None = None
        self.checkpoint: bytes | None = None
        self._task = task
        self._pending = pending
        self._lock = lock

    def take(self) -> Report:
        """Return the report. Call it once, on the poll thread."""
        with self._lock:
            del self._pending[self._task]
            return Report(self._task, self.progress, self.checkpoint)


class MailboxSink:
    """See ``worker.handlers.attempt.Sink``. Any thread; one event per task at a time, however often it reports."""

    def __init__(self, post: Callable[[PendingReport], None], notify: Callable[[], None]) -> None:
        """``post`` and ``notify`` are the mailbox's methods."""
        self._post = post
        self._notify = notify
        self._lock = threading.Lock()
        self._pending: dict[Task, PendingReport] = {}  # reports that the poll thread has not taken

    def progress(self, task: Task, fraction: float, message: str) -> None:
        """See ``Sink``."""
        with self._lock:
            self._of(task).progress = (fraction, message)

    def checkpoint(self, task: Task, data: bytes) -> None:
        """See ``Sink``."""
        with self._lock:
            self._of(task).checkpoint = data
        self._notify()

    def _of(self, task: Task) -> PendingReport:
        pending = self._pending.get(task)
        if pending is None:
            pending = self._pending[task] = PendingReport(task, self._pending, self._lock)
            self._post(pending)
        return pending
