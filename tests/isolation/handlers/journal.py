"""A handler that writes down that it starts and ends, with its process, and takes the time that it is told."""

from __future__ import annotations

import os
import time
from typing import Any

FILE = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def handle(request: Any, context: Any) -> str:
    """Write, wait, write."""
    offset = context.origin.offset
    os.write(FILE, f"start {offset} {os.getpid()}\n".encode())
    end = time.perf_counter() + float(request.payload)
    while time.perf_counter() < end:
        pass
    os.write(FILE, f"end {offset} {os.getpid()}\n".encode())
    return str(offset)
