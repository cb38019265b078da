"""Waiting by polling until a deadline. A failure says what did not happen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_LIMIT = 90.0  # seconds; the machine may be busy, and only a failure ever waits this long


def until(condition: Callable[[], Any], what: str | Callable[[], str], seconds: float = WAIT_LIMIT) -> Any:
    """Poll until the condition returns a true value, and return it. ``what`` describes what did not happen."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return value
