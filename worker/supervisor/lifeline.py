"""The lifeline: a pipe whose end makes the kernel kill a child together with everything that it has started.

The supervisor holds the writing end and never writes. However the supervisor ends, the kernel closes the pipe and sends
SIGKILL to the child's process group. A parent-death signal alone is not enough: it reaches the child, but not the
subprocesses of a handler. The kernel does this itself, so it needs no process, and a handler that holds the interpreter
lock does not prevent it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal

from worker.linux import die_with, outlive_parent


def attach(parent: int, lifeline: int) -> None:
    """Lead a process group, and let it end with the process ``parent``, which has the other end of ``lifeline``."""
    die_with(parent)  # until the lifeline is attached
    os.setpgid(0, 0)
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:  # a sandbox without this feature: the death signal remains, and ends at least this process
        return
    # The death signal could come first: it is sent when the parent's main thread ends, while the pipe is closed with
    # its last thread. A child that is already dead has closed the lifeline, and its group would not be killed.
    outlive_parent()
    poll = select.poll()  # unlike select, it takes descriptors above 1023
    poll.register(lifeline, select.POLLIN)
    if poll.poll(0):  # the pipe ended before the lifeline was attached
        os.killpg(0, signal.SIGKILL)
