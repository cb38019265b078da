"""``context.cancelled`` in a child process."""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from typing import TYPE_CHECKING

from worker.errors import Cancelled
from worker.isolation.page import CANCELLED, REASON, REASONS

if TYPE_CHECKING:
    from worker.core.limits import Reason


_LOOK = 0.1  # seconds between two checks, because another thread may take the wakeup that was meant for this one


class RemoteCancelled:
    """Like ``worker.handlers.context.Cancelled``, but set by the parent, through a word of the shared page and an
    eventfd for waiting threads. Usable from any thread of the handler.
    """

    __slots__ = ("_descriptor", "_number", "_words")

    def __init__(self, words: memoryview, descriptor: int, number: int) -> None:
        self._words = words
        self._descriptor = descriptor
        self._number = number

    @property
    def reason(self) -> Reason | None:
        """Return why the task should stop; None while it should not."""
        return REASONS[self._words[REASON]] if self.is_set() else None

    def is_set(self) -> bool:
        """Return whether the task should stop."""
        return self._words[CANCELLED] == self._number

    __bool__ = is_set

    def raise_if_set(self) -> None:
        """Raise ``worker.Cancelled`` if the task should stop. The attempt then ends without a result."""
        if self.is_set():
            raise Cancelled(self.reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the task should stop, at most ``timeout`` seconds. Return whether it should."""
        end = None if timeout is None else time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while not self.is_set():
            left = math.inf if end is None else end - time.monotonic()
            if left <= 0:
                return False
            if poll.poll(min(left, _LOOK) * 1000) and not self.is_set():
                with contextlib.suppress(BlockingIOError):  # another thread was faster
                    os.eventfd_read(self._descriptor)  # usually left over from an earlier task
        return True
