"""Waiting is always polling until a deadline, and a failure says what was missing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 90.0  # seconds; the machine may be busy, and only a failure ever waits so long


def until(condition: Callable[[], Any], what: str | Callable[[], str], seconds: float = PATIENCE) -> Any:
    """Ask until the condition gives something true, and return that. ``what`` tells what did not come about."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return value
