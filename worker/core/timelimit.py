"""The time limit of one attempt: the setting, and the header ``x-timeout`` that may lower it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from worker.core.durations import duration

if TYPE_CHECKING:
    from worker.core.model import Headers

HEADER = "x-timeout"


class TimeLimitError(ValueError):
    """The time limit cannot be read."""


def timeout_of(headers: Headers) -> float | None:
    """Return the seconds of the header ``x-timeout``, or None without one. The last header counts.

    The text is a duration or a number of seconds. Raise TimeLimitError for any other text, and for 0.
    """
    for name, value in reversed(headers):
        if name == HEADER:
            return _seconds((value or b"").decode(errors="replace"))
    return None


def _seconds(text: str) -> float:
    try:
        seconds = duration(text)
    except ValueError:
        raise TimeLimitError(f"{HEADER}: {text[:100]!r} is neither a duration nor a number of seconds") from None
    if not 0 < seconds < math.inf:
        raise TimeLimitError(f"{HEADER}: {text[:100]!r} must be longer than 0")
    return seconds


def limit_of(headers: Headers, configured: float) -> float:
    """Return the seconds that one attempt may take; infinity without a limit. ``configured`` is 0 if the setting is
    off.

    A header that cannot be read sets no limit here, because such a request is rejected before it starts.
    """
    limit = configured or math.inf
    if headers:
        try:
            limit = min(limit, timeout_of(headers) or math.inf)
        except TimeLimitError:
            return limit
    return limit
