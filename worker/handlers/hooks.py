"""Hooks that a handler's module can define, called once per process.

The module of ``WORKER_HANDLER`` may define ``worker_process_init()`` and ``worker_process_shutdown()``. The first is
called in the process that runs the handler, before its first task. The second is called when that process ends
normally.
"""

from __future__ import annotations

import sys
from typing import Any

import structlog

from worker.errors import HandlerError

INIT, SHUTDOWN = "worker_process_init", "worker_process_shutdown"


def set_up(reference: str) -> None:
    """Call the set-up hook of the handler's module, if it has one. Raise HandlerError with one line."""
    try:
        _call(reference, INIT)
    except Exception as error:
        raise HandlerError(f"WORKER_HANDLER={reference}: {INIT}() failed: {type(error).__name__}: {error}") from error


def tear_down(reference: str) -> None:
    """Call the tear-down hook, if there is one. An exception is only logged, because the process ends anyway."""
    try:
        _call(reference, SHUTDOWN)
    except BaseException:  # noqa: BLE001 - see above; sys.exit() too
        structlog.get_logger("handler").exception("handler.shutdown_failed")


def _call(reference: str, name: str) -> None:
    hook: Any = getattr(sys.modules[reference.partition(":")[0]], name, None)
    if hook is not None:
        hook()
