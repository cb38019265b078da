"""The handler of one stage of a chain. It sends its payload to the next stage."""

from __future__ import annotations

import time
from typing import Any


def handle(request: Any, context: Any, *, topic: str = "") -> str:
    """Send the payload to the next stage, and work for a moment. The last stage has no ``topic``."""
    if topic:
        context.send(request.payload, key=context.key, topic=topic)
    time.sleep(0.02)
    return str(request.payload)
