"""The id of a request: everything that another process needs to find its answer. Pure."""

from __future__ import annotations

from typing import NamedTuple, Self

_SEPARATOR = "~"  # it is not allowed in topic names and needs no quoting in a URL
_PARTS = 3
_GREATEST = 2**63 - 1  # offsets and timestamps are int64


class InvalidIdError(ValueError):
    """The text is not the id of a request."""


class Origin(NamedTuple):
    """The position of the request, which is its identity."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return the form that the commands use."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class TaskId(NamedTuple):
    """The origin of a request, and when it was written. Its answer cannot be older.

    ``timestamp_ms`` is in milliseconds since the epoch; 0 if unknown.
    """

    origin: Origin
    timestamp_ms: int = 0

    def __str__(self) -> str:
        return _SEPARATOR.join(map(str, (*self.origin, self.timestamp_ms)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an id, or an origin as the commands write it (``topic/partition/offset``). Raise InvalidIdError."""
        if _SEPARATOR in text:
            head, _, stamp = text.rpartition(_SEPARATOR)
            parts = head.split(_SEPARATOR)
        else:
            parts, stamp = text.split("/"), "0"
        if len(parts) != _PARTS or not parts[0] or not all(map(_is_number, (*parts[1:], stamp))):
            raise InvalidIdError(f"{text[:200]!r} is no id of a request: use one from a submit, or its origin")
        return cls(Origin(parts[0], int(parts[1]), int(parts[2])), int(stamp))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(_GREATEST)) and int(text) <= _GREATEST
