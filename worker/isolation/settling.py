"""What a child process sets up before it runs tasks: signals, process groups and descriptors."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
from typing import Any

from worker import linux
from worker.isolation.config import Channel

HIGH = 200  # our descriptors are above this number, so that handlers that close or reuse low ones do not hit them
_LEFT_ALONE = (signal.SIGTERM, signal.SIGHUP)


def settle_in(template: int) -> None:
    """Set up a forked process. ``template`` is the process that it was forked from."""
    linux.die_with(template)
    os.setpgid(0, 0)  # processes that the handler starts end together with this one
    linux.adopt_orphans()  # processes that tasks leave behind stay with this process and end with it
    linux.be_killed_first()


def out_of_reach(channel: Channel) -> Channel:
    """Move the channel to numbers that handlers do not touch. Forks of the child do not keep it."""
    high = Channel(*(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH) for descriptor in channel))
    for descriptor in channel:
        os.close(descriptor)
    by_main_thread = True

    def before_fork() -> None:
        nonlocal by_main_thread
        by_main_thread = threading.get_native_id() == os.getpid()

    os.register_at_fork(before=before_fork, after_in_child=lambda: _leave(high, dies=by_main_thread))
    return high


def _leave(channel: Channel, *, dies: bool) -> None:
    """Close the channel in a fork that the handler made, which must not hold it open or outlive this process.

    If it ``dies``, the kernel kills it when the thread that forked it ends. A helper thread may end before its task, so
    what it has forked ends with the process group instead.
    """
    if dies:
        linux.renew_death_signal()
    for descriptor in channel:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def go_on_at_signals() -> None:
    """Ignore signals meant for the supervisor without SIG_IGN, which started programs would inherit.

    A fork that the handler makes ends on a signal as usual, even if the signal arrives before the fork is ready.
    """
    masks: list[set[int]] = []
    for number in _LEFT_ALONE:
        signal.signal(number, _go_on)

    def end_as_usual() -> None:
        for number in _LEFT_ALONE:
            if signal.getsignal(number) is _go_on:
                signal.signal(number, signal.SIG_DFL)
        restore()

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop())

    os.register_at_fork(
        before=lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_ALONE)),
        after_in_parent=restore,
        after_in_child=end_as_usual,
    )


def _go_on(number: int, frame: object) -> None:
    """See ``go_on_at_signals``."""


def seed() -> None:
    """Seed numpy, because all children of one template would draw the same numbers. ``random`` does it itself."""
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)  # do not lose output from just before a crash
