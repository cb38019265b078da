"""Events from the executor to the poll thread, with a wakeup."""

from __future__ import annotations

import queue
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.executors.port import Event


class Mailbox:
    """A queue of events. An event can be taken as soon as it is posted. Wakeups are rarer because they cost more."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._wakeup: queue.SimpleQueue[None] = queue.SimpleQueue()

    def post(self, event: Event) -> None:
        """Post an event, from any thread."""
        self._events.append(event)

    def notify(self) -> None:
        """Wake the poll thread, from any thread."""
        self._wakeup.put(None)

    @property
    def is_empty(self) -> bool:
        """Return whether the poll thread has taken everything. Any thread may call it."""
        return not self._events

    def wait(self, timeout: float) -> None:
        """Wait for a wakeup, at most ``timeout`` seconds. For the poll thread."""
        try:
            self._wakeup.get(timeout=timeout) if timeout > 0 else self._wakeup.get_nowait()
            while True:
                self._wakeup.get_nowait()
        except queue.Empty:
            return

    def take(self) -> list[Event]:
        """Return every event posted so far, in order. For the poll thread."""
        events = self._events
        return [events.popleft() for _ in range(len(events))]
