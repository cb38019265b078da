"""Parsers from text to value: plain functions that raise ValueError with "must be …"."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator

from worker.core.durations import SECONDS_PER_SUFFIX, duration

if TYPE_CHECKING:
    from collections.abc import Callable

_ADDRESS = re.compile(r"(?:\w+://)?(?:\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(?::(\d+))?")
LONGEST_TOPIC = 249  # characters
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_TOPIC}}}")
_REFERENCE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_REPLICA = re.compile(r"[A-Za-z0-9._-]{1,100}")
_GREATEST_PORT = 65535


_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.ASCII)
_POWERS = {"": 1}
for _power, _unit in enumerate("kmgt", 1):
    _POWERS |= {_unit: 1000**_power, f"{_unit}i": 1024**_power}


class Backoff(NamedTuple):
    """The first and the greatest delay between attempts, in seconds."""

    first: float
    greatest: float


def duration_above_zero(text: str) -> float:
    """Return the seconds of a duration above 0."""
    seconds = duration(text)
    if seconds <= 0:
        raise ValueError("must be longer than 0")
    return seconds


def show_duration(seconds: float) -> str:
    """Return a duration in the largest unit in which it is a whole number of at least two."""
    for unit in ("h", "m", "s"):
        count = seconds / SECONDS_PER_SUFFIX[unit]
        if count >= 2 and count.is_integer():  # noqa: PLR2004 - 60s reads better than 1m
            return f"{count:.0f}{unit}"
    return f"{seconds:g}s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:g}ms"


def size(text: str) -> int:
    """Return the bytes of ``400MiB``, ``2Gi``, ``1.5GB`` or a plain number of bytes."""
    match = _BYTES.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("must be a size such as 400MiB, 2GiB, or a number of bytes")
    amount = float(match[1]) * _POWERS[match[2] or ""]
    if math.isinf(amount):
        raise ValueError("must be a finite size")
    return int(amount)


def backoff(text: str) -> Backoff:
    """Parse two durations, ``1s..5m``."""
    first, separator, greatest = text.partition("..")
    if not separator:
        raise ValueError("must be the first and the greatest delay, such as 1s..5m")
    value = Backoff(duration_above_zero(first), duration_above_zero(greatest))
    if value.first > value.greatest:
        raise ValueError("must have a first delay that is not longer than the greatest one")
    return value


def addresses(text: str) -> str:
    """Return a broker list without spaces."""
    entries = [entry.strip() for entry in text.split(",")]
    for entry in entries:
        match = _ADDRESS.fullmatch(entry)
        if match is None or int(match[1] or 0) > _GREATEST_PORT:
            raise ValueError("must be host:port, or several separated by commas")
    return ",".join(entries)


def topic(text: str) -> str:
    """Return a valid topic name."""
    name = text.strip()
    if _TOPIC.fullmatch(name) is None or name in {".", ".."}:
        raise ValueError(f"must be a topic: up to {LONGEST_TOPIC} letters, digits, dots, hyphens and underscores")
    return name


def topics(text: str) -> tuple[str, ...]:
    """Parse one or more topics, separated by commas."""
    names = tuple(topic(name) for name in text.split(","))
    if len(set(names)) < len(names):
        raise ValueError("must not name a topic twice")
    return names


def header_names(text: str) -> tuple[str, ...]:
    """Parse names of record headers, separated by commas, or ``none``."""
    if text.strip().lower() == "none":
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("must be header names separated by commas, each once, or none")
    return names


def reference(text: str) -> str:
    """Return a valid ``package.module:function``."""
    if _REFERENCE.fullmatch(text.strip()) is None:
        raise ValueError("must be of the form package.module:function")
    return text.strip()


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'must be a JSON object such as {{"depth": 3}}: {error}') from None
    if not isinstance(value, dict):
        raise ValueError(f'must be a JSON object such as {{"depth": 3}}, not a {type(value).__name__}')  # noqa: TRY004
    return value


def whole(least: int, greatest: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers within bounds."""
    bounds = f"at least {least}" if greatest is None else f"from {least} to {greatest}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"must be a whole number, {bounds}") from None
        if value < least or (greatest is not None and value > greatest):
            raise ValueError(f"must be {bounds}")
        return value

    return parse


def processes(text: str) -> int | Literal["auto"]:
    """Parse a number of processes, or ``auto``."""
    if text.strip().lower() == "auto":
        return "auto"
    try:
        return whole(1)(text)
    except ValueError:
        raise ValueError("must be auto or a whole number, at least 1") from None


def long_after(text: str) -> float | Literal["auto"]:
    """Parse a duration above 0, in seconds, or ``auto``."""
    if text.strip().lower() == "auto":
        return "auto"
    try:
        return duration_above_zero(text)
    except ValueError as error:
        raise ValueError(f"must be auto, or a duration: {error}") from None


def port(text: str) -> int:
    """Parse a TCP port, or 0 for none."""
    if "://" in text:
        raise ValueError(
            "must be a port number; Kubernetes sets a value like this for a Service of that name: "
            "rename the Service, or set enableServiceLinks: false"
        )
    return whole(0, _GREATEST_PORT)(text)


def lower(text: str) -> str:
    """Return a word in lower case."""
    return text.strip().lower()


def upper(text: str) -> str:
    """Return a word in upper case."""
    return text.strip().upper()


def switch(text: str) -> bool:
    """Parse on or off."""
    word = text.strip().lower()
    if word not in {"on", "off", "true", "false", "yes", "no", "1", "0"}:
        raise ValueError("must be on or off")
    return word in {"on", "true", "yes", "1"}


def replica_name(text: str) -> str:
    """Return a name that is valid in client ids and in ``group.instance.id``."""
    name = text.strip()
    if _REPLICA.fullmatch(name) is None:
        raise ValueError("must be a name of up to 100 letters, digits, dots, hyphens and underscores")
    return name


Text = Annotated[str, BeforeValidator(str.strip)]
Duration = Annotated[float, BeforeValidator(duration)]
LimitDuration = Annotated[float, BeforeValidator(duration_above_zero)]
Size = Annotated[int, BeforeValidator(size)]
Delays = Annotated[Backoff, BeforeValidator(backoff)]
Addresses = Annotated[str, BeforeValidator(addresses)]
Topic = Annotated[str, BeforeValidator(topic)]
OptionalTopic = Annotated[str, BeforeValidator(topic)]
Topics = Annotated[tuple[str, ...], BeforeValidator(topics)]
HeaderNames = Annotated[tuple[str, ...], BeforeValidator(header_names)]
Reference = Annotated[str, BeforeValidator(reference)]
JsonObject = Annotated[dict[str, Any], BeforeValidator(json_object)]
OptionalReference = Annotated[str, BeforeValidator(reference)]
ReplicaName = Annotated[str, BeforeValidator(replica_name)]
Switch = Annotated[bool, BeforeValidator(switch)]
Amount = Annotated[int, BeforeValidator(whole(0))]
Count = Annotated[int, BeforeValidator(whole(1))]
Port = Annotated[int, BeforeValidator(port)]
Processes = Annotated[int | Literal["auto"], BeforeValidator(processes)]
LongAfter = Annotated[float | Literal["auto"], BeforeValidator(long_after)]
GroupProtocol = Annotated[Literal["auto", "consumer", "classic"], BeforeValidator(lower)]
Guarantee = Annotated[Literal["at-most-once", "at-least-once", "exactly-once"], BeforeValidator(lower)]
Ordering = Annotated[Literal["partition", "key", "unordered"], BeforeValidator(lower)]
LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(upper)]
LogFormat = Annotated[Literal["auto", "console", "json"], BeforeValidator(lower)]
StaticMembership = Annotated[Literal["auto", "on", "off"], BeforeValidator(lower)]
MessageFormat = Annotated[Literal["protobuf", "json"], BeforeValidator(lower)]
Isolation = Annotated[Literal["thread", "process"], BeforeValidator(lower)]
CommitMode = Annotated[Literal["async", "sync"], BeforeValidator(lower)]
