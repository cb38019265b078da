"""The child process. It runs tasks one after another until its socket ends or it is killed."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from worker.core.dispatch import OVERLAP_SECONDS
from worker.core.model import OK, Failure, Verdict
from worker.errors import ExitCode, HandlerError
from worker.handlers import hooks
from worker.isolation import page, settling
from worker.isolation.chunks import ChunkReader
from worker.isolation.frames import (
    GREATEST_REPORT,
    READY,
    SKIPPED,
    UNSTARTABLE,
    TaskReader,
    pack_ended,
    pack_notice,
)
from worker.isolation.page import ENDED, SKIP_FROM, SKIP_UNTIL, STARTED, STARTED_AT
from worker.isolation.runner import ChildRunner
from worker.streams import end_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.model import FollowUp, Outcome, Task
    from worker.handlers.loader import Handler
    from worker.isolation.chunks import Chunk
    from worker.isolation.config import Channel, ChildConfig
    from worker.isolation.frames import Buffer

NOTIFY_NS = 50_000_000  # reports are noticed by then, even without a notification
HARMLESS_NS = 50_000  # a task that took less time cannot have closed all descriptors and opened others
OVERLAP_NS = int(OVERLAP_SECONDS * 1e9)
GREATEST_RESULT = GREATEST_REPORT - 4096


class Reports:
    """Write reports. Once a report is in the pipe, it survives this process."""

    def __init__(self, descriptor: int, wakeup: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._wakeup = wakeup
        self._lock = threading.Lock()
        self._inode = os.fstat(descriptor).st_ino
        self.notified_at = 0

    def notify(self) -> None:
        """Wake the parent."""
        self.notified_at = time.monotonic_ns()
        os.eventfd_write(self._wakeup, 1)

    def check(self) -> None:
        """End this process if the descriptor is no longer ours, because the handler closed it and opened another."""
        if os.fstat(self._descriptor).st_ino != self._inode:
            os._exit(ExitCode.PROCESS_CRASHED)

    def write(self, report: bytes) -> None:
        """Write a report. If the pipe is full, wait until the parent has read from it."""
        rest: Buffer = report
        with self._lock:  # threads of the handler report progress
            while rest:
                try:
                    written = os.write(self._descriptor, rest)
                except BlockingIOError:
                    self.notify()
                    poll = select.poll()
                    poll.register(self._descriptor, select.POLLOUT)
                    poll.poll()
                else:
                    rest = memoryview(rest)[written:] if written < len(rest) else b""


class Child:
    """Run the tasks that arrive, on the main thread of the child."""

    def __init__(self, config: ChildConfig, handler: Handler, channel: Channel) -> None:
        self._words = page.words(channel.page)
        self.reports = Reports(channel.reports, channel.wakeup)
        self._runner = ChildRunner(handler, config, self._words, channel.cancel, self.reports.write)
        self._chunks = ChunkReader(channel.tasks)
        self._tasks = TaskReader(config.topics)
        self._last = 0  # the number of the task that started last
        self._blocked: dict[int, int] = {}  # ordering groups after a failure -> the number of the task that failed

    def serve(self) -> None:
        """Run tasks until the parent closes its end."""
        while (chunk := self._chunks.next()) is not None:
            if self._blocked:  # the parent holds back a group whose failure it knows
                self._blocked = {group: number for group, number in self._blocked.items() if number > chunk.settled}
            self._runner.begin()
            self._run_all(chunk)
            if not self._chunks.ready:
                self.reports.notify()

    def _run_all(self, chunk: Chunk) -> None:
        number, last = chunk.first, chunk.first + chunk.tasks - 1
        before = time.monotonic_ns()
        for task, group in self._tasks.read(chunk.data, chunk.tasks):
            now = time.monotonic_ns()
            last_of_several = number == last > chunk.first
            if now - self.reports.notified_at > NOTIFY_NS or (last_of_several and now - before > OVERLAP_NS):
                self.reports.notify()  # before the last of them, so that the next tasks are here when it ends
            before = now
            self._run(number, task, group, now)
            number += 1

    def _run(self, number: int, task: Task, group: int, now: int) -> None:
        words = self._words
        if group in self._blocked:
            self.reports.write(pack_notice(SKIPPED, number))
            return
        words[STARTED_AT] = now
        words[STARTED] = number
        # Read after the start is announced: see ``Link.withdraw``. The parent writes SKIP_FROM first, so read it last.
        if words[SKIP_UNTIL] > number >= words[SKIP_FROM]:
            words[STARTED] = self._last
            self.reports.write(pack_notice(SKIPPED, number))
            return
        self._last = number
        self._runner.numbered = number, task
        outcome = self._runner.run(task)
        words[ENDED] = number
        if time.monotonic_ns() - now > HARMLESS_NS:
            self.reports.check()
        if len(outcome.result) + (_size_of(outcome.sent) if outcome.sent else 0) > GREATEST_RESULT:
            _refuse_result(outcome)
        if group and outcome.verdict is not OK:
            self._blocked[group] = number
        self.reports.write(pack_ended(number, task.attempt, outcome))


def _size_of(sent: Sequence[FollowUp]) -> int:
    """Return the most bytes of follow-up requests in a report."""
    return sum(4 * len(payload) + len(key or b"") + len(topic or "") + 12 for topic, key, payload in sent)


def _refuse_result(outcome: Outcome) -> None:
    size = len(outcome.result) + _size_of(outcome.sent)
    text = f"result and follow-up requests have {size} bytes; a child process passes {GREATEST_RESULT} on"
    outcome.verdict, outcome.result, outcome.failure = Verdict.REJECTED, b"", Failure("OversizedResult", text)
    outcome.sent = ()


def run(config: ChildConfig, handler: Handler, channel: Channel) -> NoReturn:
    """Run as a child until the parent closes its end. The handler is already imported."""
    channel = settling.out_of_reach(channel)
    settling.go_on_at_signals()
    faulthandler.enable(file=channel.crash, all_threads=True)
    settling.seed()
    child = Child(config, handler, channel)
    try:
        hooks.set_up(config.handler)
    except HandlerError as error:
        refuse(child.reports, error)
    child.reports.write(pack_notice(READY))
    child.reports.notify()
    with contextlib.suppress(EOFError, BrokenPipeError):
        child.serve()
    hooks.tear_down(config.handler)
    end_process(0)


def refuse(reports: Reports, error: HandlerError) -> NoReturn:
    """End this process, and report why no child can be created."""
    reports.write(pack_notice(UNSTARTABLE, text=str(error)))
    reports.notify()
    end_process(ExitCode.HANDLER_UNLOADABLE)
