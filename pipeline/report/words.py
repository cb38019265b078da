"""Numbers, durations and times in a form for people."""

from __future__ import annotations

import datetime as dt

_WHOLE = 100  # from here on, decimals do not matter
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNITS = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (2 * _MINUTE, 1.0, "s"), (2 * _HOUR, 1 / _MINUTE, "min"))


def duration(seconds: float) -> str:
    """Return a duration such as ``350 ms``, ``4.2 s``, ``17 min``, ``3.5 h`` or ``2.1 d``, with up to three figures."""
    for below, factor, unit in _UNITS:
        if seconds < below:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds / _HOUR:.3g} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.3g} d"


def percent(part: float, whole: float) -> str:
    """Return a share. It is 100 % only for the whole, and 0 % only for nothing."""
    if not whole:
        return ""
    share = 100 * part / whole
    if 0 < part < whole:
        share = min(max(share, 0.01), 99.99)
    return f"{share:.4g} %"


def rounded(number: float) -> str:
    """Return the number with three figures, or with all those before the decimal point."""
    return f"{number:,.0f}" if number >= _WHOLE else f"{number:.3g}"


def moment(epoch_seconds: float) -> str:
    """Return a time in UTC, to the second."""
    return dt.datetime.fromtimestamp(epoch_seconds, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shortened(text: str, length: int) -> str:
    """Return a text of at most that length, with its beginning and its end."""
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"
