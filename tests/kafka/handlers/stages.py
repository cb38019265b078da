"""A chain of three stages: each task sends the request of the next stage."""

from __future__ import annotations

import time
from typing import Any

STAGES = "abc"


def handle(request: Any, context: Any) -> str:
    """Do one stage of an item: ``a 17`` sends ``b 17``."""
    if request.payload == "astray":
        context.send("x", topic="..")  # no topic that Kafka allows
        return ""
    if request.payload.startswith("to "):
        context.send("c 1", topic=request.payload.removeprefix("to "))
        return ""
    stage, _, item = request.payload.partition(" ")
    if stage != STAGES[-1]:
        context.send(f"{STAGES[STAGES.index(stage) + 1]} {item}", key=context.key)
    time.sleep(0.02)
    return str(request.payload)
