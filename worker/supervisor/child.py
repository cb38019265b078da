"""One child process. The only file that starts processes, and the only one that knows ``multiprocess``.

Children are spawned, never forked: a fork would copy threads' locks and the parent's signal handlers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import types
from typing import TYPE_CHECKING, Any

from pathos.helpers import mp

from worker.supervisor.entry import enter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SPAWN = mp.get_context("spawn")
_STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def shared_buffer(size: int) -> Any:
    """``size`` bytes, all zero, that this process and a child it is passed to both map. No lock goes with them."""
    return _SPAWN.RawArray("c", size)


class Child:
    """A running process. Made and used in the main thread: when the thread that started a child ends, the kernel
    sends the child the signal it has asked for at its parent's death.

    SIGINT, SIGTERM and SIGHUP are blocked around the start, so that none meets it half done; see ``enter``. The
    child is expected to make itself the leader of a process group.
    """

    def __init__(self, name: str, target: str, *arguments: object) -> None:
        self._process = _SPAWN.Process(target=enter, args=(os.getpid(), target, *arguments), name=name)
        with _signals_blocked(), _main_module_hidden():
            self._process.start()
        self.pid: int = self._process.pid
        self._status: int | None = None

    def ended(self) -> int | None:
        """The exit code, or the signal's number below 0, once the process has ended; None while it runs.

        What is left of its process group is killed then, so that a handler's own subprocesses do not outlive it.
        """
        if self._status is None and _waitable(os.P_PID, self.pid) is not None:
            # Before the process is reaped: from then on its number may be another's.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._status = self._process.exitcode
            self._process.close()
        return self._status

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has been reaped."""
        if self._status is None:
            os.kill(self.pid, number)


def reap_strangers(known: Collection[int]) -> list[tuple[int, int]]:
    """Reap ended children that are not ``known``: orphans that came to us as PID 1. Returns their pids and statuses."""
    strangers = []
    while (pid := _waitable(os.P_ALL, 0)) is not None and pid not in known:
        strangers.append((pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    return strangers


def _waitable(kind: int, number: int) -> int | None:
    """The pid of a child that has ended and is left unreaped here, or None."""
    try:
        found = os.waitid(kind, number, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _main_module_hidden() -> Iterator[None]:
    """A spawned child imports the parent's main script, and so the whole command line; an empty one stops that."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
