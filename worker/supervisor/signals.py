"""A queue of signals. A signal handler only queues the signal; the supervisor's loop takes it and responds."""

from __future__ import annotations

import os
import queue
import select
import signal
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def hold_stop_signals() -> None:
    """Let stop signals wait until ``Signals`` is entered. Otherwise the first process of a container would lose them.

    The kernel discards signals for which that process has no handler yet, unless they are blocked.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)


class Signals:
    """While entered, stop signals are queued and wake ``wait``. Main thread only.

    ``take`` returns SIGTERM, SIGINT and SIGHUP; after the exit they are ignored. SIGCHLD only wakes ``wait``. A SIGHUP
    that was ignored before stays ignored (``nohup``).
    """

    def __init__(self) -> None:
        # Unlike locks and events, this is safe in a handler that interrupts a get or put of the same thread.
        self._queue: queue.SimpleQueue[signal.Signals] = queue.SimpleQueue()
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in _STOP:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._enqueue)
        # Only signals with a handler reach the wakeup descriptor.
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _nothing)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            # A late SIGTERM, while the interpreter shuts down, must not turn exit code 0 into -15.
            signal.signal(number, signal.SIG_IGN if number in _STOP else handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read_end)
        os.close(self._write_end)

    def wait(self, timeout: float) -> None:
        """Wait for any signal, at most ``timeout`` seconds."""
        if select.select([self._read_end], [], [], timeout)[0]:
            os.read(self._read_end, 4096)

    def take(self) -> list[signal.Signals]:
        """Return the stop signals since the last call, in order."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]

    def _enqueue(self, number: int, _frame: FrameType | None) -> None:
        self._queue.put_nowait(signal.Signals(number))


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGCHLD, which only has to wake ``wait``."""
