"""The CPU and memory use of processes, as the kernel counts it."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import psutil

from worker.linux import descendants_of


class Usage(NamedTuple):
    """The CPU seconds of all threads of a process, and its resident bytes."""

    cpu_seconds: float
    resident_bytes: int


def usage_of(pid: int) -> Usage:
    """Return the usage of one process; zeros when it has ended or cannot be read."""
    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        times = process.cpu_times()
        return Usage(times.user + times.system, process.memory_info().rss)
    return Usage(0.0, 0)


def cpu_of_tree(pid: int) -> float:
    """Return the CPU seconds of a process and its subprocesses, including those that have ended and were waited for.

    Raise OSError if they cannot be read, for example because this process has too many open files.
    """
    return sum(_cpu_seconds(each) for each in [pid, *descendants_of(pid)])


def _cpu_seconds(pid: int) -> float:
    with contextlib.suppress(psutil.Error):
        return sum(psutil.Process(pid).cpu_times()[:4])  # user, system, and both for children that were waited for
    return 0.0
