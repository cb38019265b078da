"""The notation for durations: ``500ms``, ``90s``, ``15m``, ``2h``, ``1d``, or a plain number of seconds."""

from __future__ import annotations

import re

SECONDS_PER_SUFFIX = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)


def duration(text: str) -> float:
    """Return the seconds. Raise ValueError with "must be …" for any other text."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("must be a duration such as 500ms, 90s, 15m, 2h, or a number of seconds")
    return float(match[1]) * SECONDS_PER_SUFFIX[match[2] or "s"]
