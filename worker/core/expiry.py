"""Until when a request is of use: the header ``x-deadline``."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.core.model import Headers

HEADER = "x-deadline"
_NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d+)?", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d):([0-5]\d|60)(\.\d+)?(Z|[+-]\d\d:\d\d)",
    re.ASCII,
)


class DeadlineError(ValueError):
    """A deadline that cannot be read."""


def deadline_of(headers: Headers) -> float | None:
    """Seconds since the epoch, or None if the request has no deadline; the last counts if there are several.

    It is written as RFC 3339 or as a number of seconds since the epoch. Raises DeadlineError for anything else.
    """
    for name, value in reversed(headers):
        if name == HEADER:
            return _seconds((value or b"").decode(errors="replace").strip())
    return None


def _seconds(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return float(text)
    match = _MOMENT.fullmatch(text.upper())
    if match is None:
        raise DeadlineError(f"{HEADER}: {text[:100]!r} is neither RFC 3339 nor seconds since the epoch")
    day, time, second, fraction, zone = match.groups()
    try:
        # A leap second is the one before it and one more: the calendar of computers has none.
        moment = dt.datetime.fromisoformat(f"{day}T{time}:{min(int(second), 59):02d}{fraction or ''}{zone}")
    except ValueError as error:
        raise DeadlineError(f"{HEADER}: {text[:100]!r} is no time: {error}") from None
    return moment.timestamp() + max(0, int(second) - 59)
