"""One child process. Only this module starts processes and imports ``multiprocess``.

Children are spawned, never forked: a fork would copy locks of threads and the parent's signal handlers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import types
from typing import TYPE_CHECKING, Any

from pathos.helpers import mp

from worker import linux
from worker.supervisor.entry import enter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SPAWN = mp.get_context("spawn")
_STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def shared_buffer(size: int) -> Any:
    """Return ``size`` zero bytes that this process shares with the child to which they are passed. There is no lock."""
    return _SPAWN.RawArray("c", size)


class Child:
    """A running process that leads a process group, which ends with this process; see ``worker.supervisor.lifeline``.

    Main thread only: the kernel sends a child its parent-death signal when the thread that started it ends. SIGINT,
    SIGTERM and SIGHUP are blocked during the start, so that none arrives too early; see ``enter``.
    """

    def __init__(self, name: str, target: str, *arguments: object) -> None:
        reader, self._lifeline = _SPAWN.Pipe(duplex=False)
        self._process = _SPAWN.Process(target=enter, args=(os.getpid(), reader, target, *arguments), name=name)
        with reader, _signals_blocked(), _main_module_hidden():
            self._process.start()
        # Starting a process reaps every ended process that the library lists. Only ``ended`` may do that.
        mp.process._children.discard(self._process)  # noqa: SLF001 - there is no public way
        self.pid: int = self._process.pid
        self._status: int | None = None

    def ended(self) -> int | None:
        """Return the exit code, or the negative number of the signal, of an ended process; None while it runs.

        Also kill the rest of its process group, so that subprocesses of a handler do not outlive it.
        """
        if self._status is None and _waitable(os.P_PID, self.pid) is not None:
            linux.kill_group(self.pid)  # before the process is reaped, because afterwards its number may be reused
            self._status = self._process.exitcode
            self._process.close()
            self._lifeline.close()
        return self._status

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has been reaped."""
        if self._status is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process and its group. Subprocesses of a handler would outlive a process that is killed alone."""
        if self._status is None:
            linux.kill(self.pid)  # it may not lead a group yet
            linux.kill_group(self.pid)


def reap_orphans(known: Collection[int]) -> list[tuple[int, int]]:
    """Reap ended children that are not ``known``: orphans that PID 1 inherits. Return their pids and statuses."""
    orphans = []
    while (pid := _waitable(os.P_ALL, 0)) is not None and pid not in known:
        orphans.append((pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    return orphans


def _waitable(kind: int, number: int) -> int | None:
    """Return the pid of a child that has ended, without reaping it, or None."""
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
    """Hide the parent's main module, here the whole command line, which a spawned child would import."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
