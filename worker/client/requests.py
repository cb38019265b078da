"""Converts the arguments of a submit to a record of the request topic. Pure. Raises ValueError or TypeError."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from worker.core.expiry import HEADER as DEADLINE

if TYPE_CHECKING:
    from worker.core.model import Headers

TIMEOUT = "x-timeout"
Value = str | bytes | None
GivenHeaders = Mapping[str, Value] | Iterable[tuple[str, Value]]


def payload_text(payload: object) -> str:
    """Return the payload if it is a str."""
    if not isinstance(payload, str):
        raise TypeError(f"payload must be a str, not {type(payload).__name__}: use json.dumps for data")
    return payload


def key_bytes(key: str | bytes | None) -> bytes | None:
    """Return the key as it is written."""
    return key.encode() if isinstance(key, str) else key


def headers_of(headers: GivenHeaders, deadline: dt.datetime | float | None, timeout: float | None) -> Headers:
    """Return the given headers, with ``x-deadline`` (seconds since the epoch) and ``x-timeout`` (seconds) if set."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    result = [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
    for name, _ in result:
        if "\0" in name:
            raise ValueError(f"the name of a header must not contain NUL: {name!r}")
    if deadline is not None:
        result.append((DEADLINE, _seconds("deadline", _moment(deadline))))
    if timeout is not None:
        result.append((TIMEOUT, _seconds("timeout", timeout)))
    return tuple(result)


def _moment(deadline: dt.datetime | float) -> float:
    if not isinstance(deadline, dt.datetime):
        return deadline
    if deadline.tzinfo is None:
        raise ValueError("deadline has no time zone: use datetime.now(UTC) + timedelta(…), or seconds since the epoch")
    return deadline.timestamp()


def _seconds(name: str, value: float) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a number of seconds above 0, not {value}")
    return f"{value:.3f}".encode()
