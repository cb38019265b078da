"""The deadline of a request: the header ``x-deadline``."""

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
    """The deadline cannot be read."""


def deadline_of(headers: Headers) -> float | None:
    """Return the deadline in seconds since the epoch, or None if there is none. The last header counts.

    The text is RFC 3339 or a number of seconds since the epoch. Raise DeadlineError for any other text.
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
        # A leap second becomes the second before it plus one, because Python's calendar has none.
        moment = dt.datetime.fromisoformat(f"{day}T{time}:{min(int(second), 59):02d}{fraction or ''}{zone}")
    except ValueError as error:
        raise DeadlineError(f"{HEADER}: {text[:100]!r} is no time: {error}") from None
    return moment.timestamp() + max(0, int(second) - 59)
