"""From the service thread to the poll thread: outcomes, and a bell to wake it."""

from __future__ import annotations

import queue
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.core.model import Outcome


class Mailbox:
    """Outcomes are there as soon as they are posted; the bell is rung less often, since a wake-up costs more."""

    def __init__(self) -> None:
        self._outcomes: deque[Outcome] = deque()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def post(self, outcome: Outcome) -> None:
        """Leave an outcome. Any thread."""
        self._outcomes.append(outcome)

    def ring(self) -> None:
        """Wake the poll thread. Any thread."""
        self._bell.put(None)

    def wait(self, timeout: float) -> None:
        """Wait for the bell, at most ``timeout`` seconds. Poll thread."""
        try:
            self._bell.get(timeout=timeout) if timeout > 0 else self._bell.get_nowait()
            while True:
                self._bell.get_nowait()
        except queue.Empty:
            return

    def take(self) -> list[Outcome]:
        """All outcomes posted so far, in order. Poll thread."""
        outcomes = self._outcomes
        return [outcomes.popleft() for _ in range(len(outcomes))]
