"""Where every child process begins, in a fresh interpreter. Imports nothing that only the parent needs."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def enter(parent: int, target: str, *arguments: object) -> None:
    """Call ``package.module:function``, named so that the parent need not import it."""
    # Before anything that takes time: a handler's import may take minutes.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)
    # A Ctrl-C reaches everything on the terminal; what it means for a child is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent starts children with signals blocked
    _import_structlog_without_rich()
    module, _, function = target.partition(":")
    getattr(importlib.import_module(module), function)(*arguments)


def _import_structlog_without_rich() -> None:
    """Where rich is installed, structlog imports it: 5 MB and 150 ms that no child needs. A handler still may."""
    modules: dict[str, Any] = sys.modules
    modules["rich"] = None  # importing it now fails
    try:
        importlib.import_module("structlog")
    finally:
        del modules["rich"]
