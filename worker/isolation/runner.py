"""Runs attempts in a child process, on its main thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from worker.formats import FORMATS
from worker.handlers.attempt import AttemptRunner
from worker.isolation.context import RemoteCancelled
from worker.isolation.frames import pack_checkpoint, pack_progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Task
    from worker.handlers.context import Cancelled
    from worker.handlers.loader import Handler
    from worker.isolation.config import ChildConfig


class ChildRunner(AttemptRunner):
    """An attempt runner whose tasks are cancelled by the parent process and report to it."""

    def __init__(
        self,
        handler: Handler,
        config: ChildConfig,
        words: memoryview,
        descriptor: int,
        write: Callable[[bytes], None],
    ) -> None:
        """``write`` writes a report to the parent. Any thread may call it."""
        decode = FORMATS[config.message_format].decode_request
        super().__init__(handler, config.kwargs, config.max_attempts, decode=decode)
        self.numbered: tuple[int, Task | None] = (0, None)  # the task that runs next, or runs, by the parent's count
        self.sink = _ReportSink(self, write)
        self._words = words
        self._descriptor = descriptor
        self._new_cancelled = self._cancelled_by_parent

    def _cancelled_by_parent(self) -> Cancelled:
        return cast("Cancelled", RemoteCancelled(self._words, self._descriptor, self.numbered[0]))


class _ReportSink:
    """See ``worker.handlers.attempt.Sink``: reports to the parent."""

    def __init__(self, runner: ChildRunner, write: Callable[[bytes], None]) -> None:
        self._runner = runner
        self._write = write

    def progress(self, task: Task, fraction: float, message: str) -> None:
        """See ``Sink``."""
        number, running = self._runner.numbered
        if running is task:  # a thread of the handler may have outlived its task
            self._write(pack_progress(number, fraction, message))

    def checkpoint(self, task: Task, data: bytes) -> None:
        """See ``Sink``."""
        number, running = self._runner.numbered
        if running is task:
            self._write(pack_checkpoint(number, data))
