"""Linux functions for processes that Python's ``os`` lacks: death signals, orphans, memory."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_SHORTAGES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


def is_shortage(error: OSError) -> bool:
    """Return whether the kernel refused something for lack of process numbers, memory or descriptors."""
    return error.errno in _SHORTAGES


def die_with(parent: int) -> None:
    """Make the kernel kill this process when the thread that started it ends. ``parent`` is the pid of its process."""
    renew_death_signal()
    if os.getppid() != parent:  # the parent has already ended
        os._exit(1)


def renew_death_signal() -> None:
    """Set the death signal again, which a fork clears. Call it in the forked process."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def outlive_parent() -> None:
    """Undo ``die_with``."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def be_killed_first() -> None:
    """Make the kernel kill this process rather than the worker process when memory runs out."""
    with contextlib.suppress(OSError):  # /proc is read-only: no reason for a task to fail
        Path("/proc/self/oom_score_adj").write_text("1000")


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process; empty if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def descendants_of(pid: int) -> list[int]:
    """Return children, their children and so on. Some may already be gone."""
    found = children_of(pid)
    for one in found:  # the list grows during the loop
        found += children_of(one)
    return found


def ended_children_of(pid: int) -> int:
    """Return how many children of a process have ended and were not waited for."""
    ended = 0
    for child in children_of(pid):
        with contextlib.suppress(OSError):
            ended += Path(f"/proc/{child}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    return ended


def resident_bytes(pid: int) -> int:
    """Return a process's anonymous pages and shared memory in bytes, without files; 0 if it is gone.

    Pages that a forked process shares with its parent count too.
    """
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_bytes()
        rows = (line.split() for line in status.splitlines() if line.startswith((b"RssAnon:", b"RssShmem:")))
        return sum(int(row[1]) << 10 for row in rows)
    return 0


def resident_with_all(pid: int) -> int:
    """Return the same for a process that adopts orphans, and everything it has started."""
    return sum(map(resident_bytes, [pid, *descendants_of(pid)]))


def step_back(group: int, niceness: int) -> None:
    """Set the CPU priority of all threads of a process group, unless it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PGRP, group, niceness)


def kill(pid: int) -> bool:
    """Send SIGKILL, unless the process is gone. Return False if access is denied."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def kill_group(pid: int) -> None:
    """Send SIGKILL to the process group of this leader, unless it is gone or access is denied."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def close_at_exec(descriptor: int) -> None:
    """Do not pass the descriptor on to programs that this process becomes or starts."""
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no keyword


def keep_at_exec(descriptor: int) -> None:
    """Keep the descriptor in the program that this process becomes."""
    os.set_inheritable(descriptor, True)  # noqa: FBT003 - see above
