"""The entry point of every child process, in a fresh interpreter. It imports nothing that only the parent needs."""

from __future__ import annotations

import importlib
import signal
from typing import Any

from worker import lean
from worker.supervisor.lifeline import attach


def enter(parent: int, lifeline: Any, target: str, *arguments: object) -> None:
    """Call ``target``, a ``package.module:function`` that the parent does not import, as leader of a process group.

    The group is killed when the process ``parent`` ends, which has the other end of the pipe ``lifeline``.
    """
    attach(parent, lifeline.fileno())  # before anything slow, because importing a handler may take minutes
    # A Ctrl-C reaches every process of the terminal. The parent decides what it means for a child.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent starts children with signals blocked
    lean.import_structlog()
    module, _, function = target.partition(":")
    getattr(importlib.import_module(module), function)(*arguments)
