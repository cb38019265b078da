"""One task of a queue peer, from its payload to the report of the worker."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

from benchmarks import handlers

TaskReport = tuple[str, float, float, float]  # worker, started and finished (seconds since the epoch), CPU seconds


def do(handler: str, payload: str) -> TaskReport:
    """Run a handler of the suite with the part of a request that it reads. Return the report."""
    started, cpu = time.time(), time.thread_time()
    request: Any = SimpleNamespace(payload=payload)
    getattr(handlers, handler)(request, None)
    return str(os.getpid()), started, time.time(), time.thread_time() - cpu
