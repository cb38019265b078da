"""A handler that sends too much."""

from __future__ import annotations

from typing import Any


def flood(request: Any, context: Any) -> str:
    """Send more than a report may hold, unless the request has a payload."""
    if not request.payload:
        for _ in range(5):
            context.send("x" * (8 << 20))
    return str(request.payload)
