"""A clock that jumps to the next event as soon as every fibre waits, so that hours take no time.

Every worker process runs as a *fibre*: a thread that runs only while all other fibres wait in ``wait``. The fibres take
turns, so a run with simulated tasks is the same every time.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class _Ended(BaseException):
    """Ends a fibre when its clock is closed."""


class _Waiter(NamedTuple):
    """A waiting fibre: until when it waits, and for which condition."""

    end: float
    order: int
    until: Callable[[], bool]
    go: threading.Lock
    fibre: threading.Thread


class Clock:
    """Call the clock to get the time in seconds. Events that are due run on the thread of the waiting fibre."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._waiters: list[_Waiter] = []
        self._order = itertools.count()
        self._killed: list[_Waiter] = []
        self._closed = False

    def __call__(self) -> float:
        return self._now

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run an action after ``seconds``. The action must not wait."""
        heapq.heappush(self._events, (self._now + seconds, next(self._order), action))

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass until the condition holds or the seconds are over. Return whether it holds."""
        if until():
            return True
        me = threading.current_thread()
        waiter = _Waiter(self._now + seconds, next(self._order), until, threading.Lock(), me)
        self._waiters.append(waiter)
        waiter.go.acquire()
        self._hand_on(waiter)
        if self._closed:
            raise _Ended
        return until()

    def spawn(self, life: Callable[[], object]) -> threading.Thread:
        """Run a function as a new fibre."""
        go = threading.Lock()
        go.acquire()
        fibre = threading.Thread(target=self._live, args=(life, go), daemon=True)
        self._waiters.append(_Waiter(self._now, next(self._order), lambda: True, go, fibre))
        fibre.start()
        return fibre

    def kill(self, fibre: threading.Thread) -> None:
        """Never let the fibre return from its wait, as after SIGKILL."""
        self._killed += [waiter for waiter in self._waiters if waiter.fibre is fibre]
        self._waiters = [waiter for waiter in self._waiters if waiter.fibre is not fibre]

    def freeze(self, fibre: threading.Thread) -> None:
        """Do not let the fibre return from its wait until ``thaw``, as after SIGSTOP."""
        self.kill(fibre)

    def thaw(self, fibre: threading.Thread) -> None:
        """Let a frozen fibre continue."""
        self._waiters += [waiter for waiter in self._killed if waiter.fibre is fibre]
        self._killed = [waiter for waiter in self._killed if waiter.fibre is not fibre]

    def close(self) -> None:
        """End all fibres, one after another."""
        self._closed = True
        self._waiters += self._killed
        while self._waiters:
            with contextlib.suppress(_Ended):
                self.wait(0.0)

    def _live(self, life: Callable[[], object], go: threading.Lock) -> None:
        go.acquire()
        try:
            if not self._closed:
                life()
        except _Ended:
            pass
        finally:
            self._next().go.release()

    def _hand_on(self, waiter: _Waiter) -> None:
        """Let the next fibre run, and return when it is this one's turn."""
        chosen = self._next()
        if chosen is not waiter:
            chosen.go.release()
            waiter.go.acquire()

    def _next(self) -> _Waiter:
        """Let time pass until one of the waiting fibres may run."""
        while True:
            if self._closed:
                return self._waiters.pop(0)
            chosen = next((waiter for waiter in self._waiters if waiter.until()), None)
            if chosen is None:
                first = min(self._waiters)
                if not self._events or first.end <= self._events[0][0]:
                    assert first.end < math.inf, "deadlock: every fibre waits and no event is due"
                    self._now, chosen = max(self._now, first.end), first
            if chosen is not None:
                self._waiters.remove(chosen)
                return chosen
            when, _, action = heapq.heappop(self._events)
            self._now = max(self._now, when)
            action()
