"""The smallest handler: ``WORKER_HANDLER=examples.hello:greet worker run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import worker

if TYPE_CHECKING:
    from worker.codec import Request
    from worker.handlers.context import Context


def greet(request: Request, context: Context, greeting: str = "Hello") -> str:
    """Greet the person in the payload. ``WORKER_HANDLER_KWARGS='{"greeting": "Good day"}'`` changes the greeting."""
    if not request.payload:
        raise worker.Reject("nobody to greet")
    context.log.info("greeting", name=request.payload)
    return f"{greeting}, {request.payload}!"
