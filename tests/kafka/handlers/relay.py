"""The handler of one stage of a chain, which sends what it gets to the next."""

from __future__ import annotations

import time
from typing import Any


def handle(request: Any, context: Any, *, topic: str = "") -> str:
    """Work for a moment, and send the payload on; the last stage has no ``topic``."""
    if topic:
        context.send(request.payload, key=context.key, topic=topic)
    time.sleep(0.02)
    return str(request.payload)
