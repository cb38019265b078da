"""Tells whether this process may be forked after it has imported the handler.

A fork copies only one thread. Locks and work of other threads are lost in the copy, and a child that needs them hangs.
Sockets and GPU descriptors are shared with the copy, which gives wrong results or none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_HARMLESS_THREADS = {"jemalloc_bg_thd"}  # starts again in the child by itself
_GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")


def obstacles(known: Collection[int]) -> list[str]:
    """Return what makes a fork unsafe, in words; empty if it is safe. ``known`` are our own descriptors.

    This forks once and counts threads afterwards: OpenBLAS has a thread pool and ends it at every fork.
    """
    found = [*_descriptors(known)]
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    found += _threads()
    os.waitpid(pid, 0)
    return found


def _threads() -> Iterator[str]:
    for thread in Path("/proc/self/task").iterdir():
        try:
            name = (thread / "comm").read_text().strip()
        except OSError:  # it has just ended
            continue
        if int(thread.name) != os.getpid() and name not in _HARMLESS_THREADS:
            yield f"thread {name}"


def _descriptors(known: Collection[int]) -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:  # the directory itself, which was open for reading
            continue
        if int(link.name) not in known and target.startswith(("socket:", *_GPU_DEVICES)):
            yield f"descriptor {link.name} ({target})"
