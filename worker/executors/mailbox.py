"""Events from the executor to the poll thread, with a wakeup."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

from worker.core.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.executors.port import ChildEnded, Event, ExecutorFailed
    from worker.executors.reports import PendingReport

    News = ExecutorFailed | ChildEnded | PendingReport


class Mailbox:
    """Two queues of events: outcomes, which may have to wait for room, and news, which never wait.

    An event can be taken as soon as it is posted. Wakeups are rarer because they cost more.
    """

    def __init__(self) -> None:
        self._outcomes: deque[Outcome] = deque()
        self._news: deque[News] = deque()
        self._wakeup = threading.Lock()  # free: there is a wakeup
        self._wakeup.acquire()

    def post(self, event: Event) -> None:
        """Post an event, from any thread."""
        if isinstance(event, Outcome):
            self._outcomes.append(event)
        else:
            self._news.append(event)

    def notify(self) -> None:
        """Wake the poll thread, from any thread."""
        with contextlib.suppress(RuntimeError):  # there is a wakeup already
            self._wakeup.release()

    @property
    def is_empty(self) -> bool:
        """Return whether the poll thread has taken all outcomes. Any thread may call it."""
        return not self._outcomes

    def wait(self, timeout: float) -> None:
        """Wait for a wakeup, at most ``timeout`` seconds. For the poll thread.

        ``SimpleQueue.get`` never returns if a signal interrupts it after its time is up (CPython 3.11).
        """
        self._wakeup.acquire(timeout=max(0.0, timeout))

    def take(self) -> Sequence[Event]:
        """Return every event posted so far: the news, and then the outcomes in order. For the poll thread.

        The report of a task never comes after its outcome, because the outcomes are taken first.
        """
        outcomes = [self._outcomes.popleft() for _ in range(len(self._outcomes))]
        return [*self.take_news(), *outcomes] if self._news else outcomes

    def take_news(self) -> Sequence[News]:
        """Return every event posted so far that is no outcome, in order. For the poll thread."""
        return [self._news.popleft() for _ in range(len(self._news))]
