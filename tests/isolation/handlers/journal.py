"""A handler that records its start and its end with its process id. The payload is its duration in seconds."""

from __future__ import annotations

import os
import time
from typing import Any

FILE = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def handle(request: Any, context: Any) -> str:
    """Record the start, keep the CPU busy, and record the end."""
    offset = context.origin.offset
    os.write(FILE, f"start {offset} {os.getpid()}\n".encode())
    end = time.perf_counter() + float(request.payload)
    while time.perf_counter() < end:
        pass
    os.write(FILE, f"end {offset} {os.getpid()}\n".encode())
    return str(offset)
