"""A task of many steps with a checkpoint for each, and a task that waits until it is asked to stop."""

from __future__ import annotations

import json
import os
import time
from typing import Any


def handle(request: Any, context: Any) -> str:
    """Do what the payload says: ``{"file": …, "steps": 200, "pause": 0.05}``, or ``{"wait": 60}``."""
    wanted = json.loads(request.payload)
    if "wait" in wanted:
        context.progress(0.5, "waiting")
        if context.cancelled.wait(wanted["wait"]):
            context.cancelled.raise_if_set()
        return "waited"
    first = int(context.resume or b"0")
    for step in range(first, wanted["steps"]):
        _write(wanted["file"], f"{os.getpid()} {step}\n")
        context.checkpoint(str(step + 1).encode())
        context.progress((step + 1) / wanted["steps"], f"step {step}")
        time.sleep(wanted["pause"])
    return f"from {first}"


def _write(path: str, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
