"""Dead letters: what their headers say, which are asked for, and the request that one came from."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from worker.kafka.sender import Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.core.model import Partition, Record

REPLAYED_FROM = "x-replayed-from"
# What the worker adds to a dead letter, and what an earlier replay added to the request.
ADDED = {
    "x-origin-topic",
    "x-origin-partition",
    "x-origin-offset",
    "x-attempts",
    "x-error-type",
    "x-error-message",
    "x-value-dropped",
    REPLAYED_FROM,
}


class Letter:
    """One record of the dead-letter topic."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._headers = {name: content or b"" for name, content in record.headers}  # the last of a name counts

    @property
    def place(self) -> str:
        """``topic/partition/offset`` of the dead letter: what a replayed request names in its header."""
        return place_of(self.record.partition, self.record.offset)

    @property
    def mark(self) -> str:
        """The same with its time, so that the letters of a topic made anew are not taken for those of the old one."""
        return f"{self.place}/{self.record.timestamp_ms}"

    def fields(self) -> dict[str, Any]:
        """What can be shown and matched, by name."""
        return {
            "time_ms": self.record.timestamp_ms,
            "origin_topic": self._text("x-origin-topic"),
            "origin_partition": self._number("x-origin-partition"),
            "origin_offset": self._number("x-origin-offset"),
            "attempts": self._number("x-attempts"),
            "error_type": self._text("x-error-type"),
            "error_message": self._text("x-error-message"),
            "key": (self.record.key or b"").decode(errors="replace"),
            "place": self.place,
        }

    def _text(self, name: str) -> str:
        return self._headers.get(name, b"").decode(errors="replace")

    def _number(self, name: str) -> int | None:
        text = self._text(name)
        return int(text) if text.isdecimal() else None

    def matches(self, patterns: Iterable[tuple[str, str]]) -> bool:
        """Whether each field named fits its pattern: ``*``, ``?`` and ``[…]`` as in file names."""
        fields = self.fields()
        return all(fnmatch.fnmatchcase(str(fields[name]), pattern) for name, pattern in patterns)

    @property
    def obstacle(self) -> str | None:
        """Why the request cannot be sent again, or None."""
        if not self._text("x-origin-topic"):
            return "it has no x-origin-topic header"
        if "x-value-dropped" in self._headers:
            return "its value was too large to be kept; it still stands at its origin"
        return None

    def request(self) -> Outgoing:
        """The request it was: the same bytes, and a header that says where it was replayed from."""
        headers = tuple(header for header in self.record.headers if header[0] not in ADDED)
        return Outgoing(
            self._text("x-origin-topic"),
            self.record.key,
            self.record.value,
            (*headers, (REPLAYED_FROM, self.place.encode())),
        )


MATCHABLE = ("origin_topic", "origin_partition", "origin_offset", "attempts", "error_type", "error_message", "key")


def place_of(partition: Partition, offset: int) -> str:
    return f"{partition.topic}/{partition.number}/{offset}"
