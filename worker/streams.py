"""The standard streams of a process at its end."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """Flush stdout and stderr and end the process at once. Exit handlers and other threads do not run any further."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, full, without a reader, or None
            stream.flush()
    os._exit(code)
