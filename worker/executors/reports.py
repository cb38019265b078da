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

    def __init__(self, task: Task, lock: threading.Lock) -> None:
        self.task = task
        self.taken = False
        self.progress: tuple[float, str] | None = None
        self.checkpoint: bytes | None = None
        self._lock = lock

    def take(self) -> Report:
        """Return the report. Call it once, on the poll thread."""
        with self._lock:
            self.taken = True
            return Report(self.task, self.progress, self.checkpoint)


class MailboxSink:
    """See ``worker.handlers.attempt.Sink``. Any thread; one event at a time, however often a handler reports."""

    def __init__(self, post: Callable[[PendingReport], None], notify: Callable[[], None]) -> None:
        """``post`` and ``notify`` are the mailbox's methods."""
        self._post = post
        self._notify = notify
        self._lock = threading.Lock()
        self._pending: PendingReport | None = None

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
        pending = self._pending
        if pending is None or pending.taken or pending.task is not task:
            pending = self._pending = PendingReport(task, self._lock)
            self._post(pending)
        return pending
