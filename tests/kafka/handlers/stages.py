"""A chain of three stages: each task sends the request of the next stage."""

from __future__ import annotations

import time
from typing import Any

STAGES = "abc"
SENDS: dict[str, list[tuple[str | None, str]]] = {
    "to": [(None, "c 1")],
    "keyed-to": [("k", "c 1")],
    "several-to": [("k", "x" * 900)] * 5,
}
"""The keys and payloads of the follow-up requests to a topic, by the first word of the request."""


def handle(request: Any, context: Any) -> str:
    """Do one stage of an item: ``a 17`` sends ``b 17``."""
    if request.payload == "astray":
        context.send("x", topic="..")  # no topic that Kafka allows
        return ""
    stage, _, item = request.payload.partition(" ")
    if stage in SENDS:
        for key, payload in SENDS[stage]:
            context.send(payload, key=key, topic=item)
        return ""
    if stage != STAGES[-1]:
        context.send(f"{STAGES[STAGES.index(stage) + 1]} {item}", key=context.key)
    time.sleep(0.02)
    return str(request.payload)
