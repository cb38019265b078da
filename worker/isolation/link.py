"""The parent's end of one child: sends tasks, reads reports, and tracks the tasks in flight."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from worker.core.inflight import InFlight
from worker.core.limits import Request
from worker.isolation import seam
from worker.isolation.frames import pack_chunk, unpack_reports
from worker.isolation.page import CANCELLED, ENDED, REASON, REASONS, SKIP_FROM, SKIP_UNTIL, STARTED, STARTED_AT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.limits import Cause, EndCause, Reason
    from worker.core.model import Task
    from worker.isolation.frames import AnyReport
    from worker.isolation.parent import ChildProcess

_READ = 1 << 16
_MOST_READ = 1 << 20  # bytes of reports that are read at once
_MOST_PARTS = 512  # of one system call
_SEEN_SECONDS = 0.001  # until the child certainly sees a word of the page, and we see what it wrote before


class Link:
    """Both threads of the worker process use it under the executor's lock. ``started`` and ``flight`` need none."""

    def __init__(self, child: ChildProcess, topics: Sequence[str]) -> None:
        self.child = child
        self.flight: InFlight[Task] = InFlight()
        self.ended = 0  # tasks whose end was reported
        self.cancelled: tuple[int, Request] | None = None  # number of the cancelled task, and the request
        self.cause: Cause | None = None  # why the child was killed
        self.retiring = False  # the child gets no more tasks
        self.retired_at: float | None = None  # since when the child should end
        self.ready = False  # the child has reported that it is ready
        self.behind = False  # there may be more reports than were read
        self._gone = range(0)  # numbers that were withdrawn last, which the child skips
        self._topics = {topic: number for number, topic in enumerate(topics)}
        self._out: list[memoryview] = []  # data that the socket has not accepted yet
        self._in = bytearray()  # an incomplete report

    @property
    def end_cause(self) -> EndCause:
        """Return why the child has ended."""
        return self.cause or ("crash" if self.retired_at is None else "recycled")

    @property
    def full(self) -> bool:
        """Return whether the socket accepts no more data at the moment."""
        return bool(self._out)

    @property
    def expects_reports(self) -> bool:
        """Return whether the child has anything to report."""
        return bool(self.flight) or not self.ready

    @property
    def started(self) -> int:
        """Return the number of the task that started last; 0 before the first."""
        number = min(self.child.words[STARTED], self.flight.next - 1)
        return self._gone.start - 1 if number in self._gone else number  # announced, but it will be skipped

    @property
    def started_at(self) -> float:
        """Return when that was, monotonic."""
        return self.child.words[STARTED_AT] / 1e9

    @property
    def running(self) -> tuple[int, Task] | None:
        """Return the running task with its number."""
        return self.flight.running(self.started)

    @property
    def working(self) -> tuple[int, Task] | None:
        """Return the task whose handler runs, even if results of earlier tasks were not read. Needs the lock."""
        started = self.started
        if self.child.words[ENDED] >= started:  # its result may have to wait for room, which is not its fault
            return None
        return next((row for row in self.flight if row[0] == started), None)

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks to the child, as far as the socket accepts them."""
        settled = self.flight.first - 1
        first = self.flight.send(tasks)
        parts = pack_chunk(tasks, self._topics, first, settled)
        self._out += [memoryview(part) for part in parts if part]
        self.flush()

    def flush(self) -> None:
        """Send more of the queued data."""
        out = self._out
        # If the child has died, nothing reads the data; its end is detected separately.
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while out:
                sent = os.writev(self.child.tasks, out[:_MOST_PARTS])
                while out and sent >= len(out[0]):
                    sent -= len(out.pop(0))
                if sent:
                    out[0] = out[0][sent:]

    def read(self) -> list[AnyReport]:
        """Return the reports that have arrived, about ``_MOST_READ`` bytes at once. Raise FrameError."""
        reports: list[AnyReport] = []
        size, room = _READ, _MOST_READ
        with contextlib.suppress(BlockingIOError):
            while size == _READ and room > 0:  # a shorter piece has emptied the pipe
                data = os.read(self.child.reports, _READ)
                size = len(data)
                room -= size
                reports += self._unpack(data)
        self.behind = room <= 0
        return reports

    def _unpack(self, data: bytes) -> list[AnyReport]:
        rest = self._in
        if rest:
            rest += data
        found, taken = unpack_reports(rest or data)
        if rest:
            del rest[:taken]
        elif taken < len(data):
            rest += data[taken:]
        return found

    def cancel(self, number: int, reason: Reason, now: float) -> None:
        """Cancel a task; the first reason stays."""
        if self.cancelled is not None and self.cancelled[0] == number:
            return
        self.cancelled = (number, Request(reason, now))
        words = self.child.words
        words[REASON] = REASONS.index(reason)
        words[CANCELLED] = number
        os.eventfd_write(self.child.cancel, 1)

    def request_of(self, number: int) -> Request | None:
        """Return whether and when this task was cancelled."""
        return self.cancelled[1] if self.cancelled is not None and self.cancelled[0] == number else None

    def kill(self, cause: Cause) -> None:
        """Kill the child; the first cause stays."""
        self.cause = self.cause or cause
        self.child.kill()

    def kill_for(self, number: int, cause: Cause) -> list[Task]:
        """Kill the child because of this task, and of no other that may start meanwhile. Return those not started."""
        back = self.withdraw()
        if self.started == number:
            self.kill(cause)
        return back

    def retire(self, now: float) -> None:
        """Let the idle child end. It gets no more tasks."""
        self.retiring, self.retired_at = True, now
        self.child.finish()

    def withdraw(self) -> list[Task]:
        """Take back the tasks that have not started, in order.

        The child announces a start and then reads whether to skip the task. The parent writes what to skip and then
        reads what has started. So at least one of them sees the other, and a task that both see comes back as skipped.
        Until then, none of its ordering group may start.
        """
        words, first, until = self.child.words, self.started + 1, self.flight.next
        if first >= until:
            return []
        words[SKIP_FROM] = first
        words[SKIP_UNTIL] = until
        time.sleep(_SEEN_SECONDS)
        started = self.started
        self._gone = range(started + 1, until)
        back = self.flight.withdraw(started)
        for number, task in self.flight:
            if number >= first:
                seam.block(task)
        return back
