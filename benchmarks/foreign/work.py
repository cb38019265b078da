"""One task of a queue peer: the payload in, and what an answer tells out."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

from benchmarks import handlers

Told = tuple[str, float, float, float]  # worker, started and finished (seconds since the epoch), CPU seconds


def do(handler: str, payload: str) -> Told:
    """Run the handler of the suite, with what it looks at of a request."""
    started, cpu = time.time(), time.thread_time()
    request: Any = SimpleNamespace(payload=payload)
    getattr(handlers, handler)(request, None)
    return str(os.getpid()), started, time.time(), time.thread_time() - cpu
