"""Dead letters: their headers, filters, and the request to replay."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from worker import headers
from worker.codec import MalformedError
from worker.kafka.sender import Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from worker.cli.access import Access
    from worker.core.model import Partition, Record
    from worker.formats import DecodeRequest

_OURS = {*headers.DEAD_LETTER, headers.REPLAYED_FROM}

MATCHABLE = (
    *("origin_topic", "origin_partition", "origin_offset"),
    *("attempts", "error_type", "error_message", "key", "replayed"),
)


class DeadLetter:
    """One record of the dead-letter topic."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._headers = {name: content or b"" for name, content in record.headers}  # the last value of a name counts

    @property
    def place(self) -> str:
        """Return the ``topic/partition/offset`` of the dead letter, as in the header of a replayed request."""
        return place_of(self.record.partition, self.record.offset)

    @property
    def origin(self) -> str:
        """Return the ``topic/partition/offset`` of the original request."""
        return "/".join(self._text(name) for name in headers.DEAD_LETTER[:3])

    @property
    def mark(self) -> str:
        """Return the position and the time, which stay unique if the topic is deleted and recreated."""
        return f"{self.place}/{self.record.timestamp_ms}"

    def fields(self, *, replayed: bool) -> dict[str, Any]:
        """Return the fields to list and to match, by name. The journal knows ``replayed``."""
        return {
            "time_ms": self.record.timestamp_ms,
            "origin_topic": self._text(headers.ORIGIN_TOPIC),
            "origin_partition": self._number(headers.ORIGIN_PARTITION),
            "origin_offset": self._number(headers.ORIGIN_OFFSET),
            "attempts": self._number(headers.ATTEMPTS),
            "error_type": self._text(headers.ERROR_TYPE),
            "error_message": self._text(headers.ERROR_MESSAGE),
            "key": (self.record.key or b"").decode(errors="replace"),
            "place": self.place,
            "replayed": replayed,
        }

    def content(self, decode: DecodeRequest) -> dict[str, Any]:
        """Return the sequence and payload of the request (None if the value is not a ``Request``), and its headers."""
        try:
            request = decode(self.record.value)
        except MalformedError:
            sequence, payload = None, None
        else:
            sequence, payload = request.sequence, request.payload
        rows = [
            [name, None if value is None else value.decode(errors="replace")]
            for name, value in self._original_headers()
        ]
        return {"sequence": sequence, "payload": payload, "headers": rows}

    def _original_headers(self) -> Iterator[tuple[str, bytes | None]]:
        return (header for header in self.record.headers if header[0] not in _OURS)

    def _text(self, name: str) -> str:
        return self._headers.get(name, b"").decode(errors="replace")

    def _number(self, name: str) -> int | None:
        text = self._text(name)
        return int(text) if text.isdecimal() else None

    @property
    def obstacle(self) -> str | None:
        """Return why the request cannot be replayed, or None."""
        if not self._text(headers.ORIGIN_TOPIC):
            return f"it has no {headers.ORIGIN_TOPIC} header"
        if headers.VALUE_DROPPED in self._headers:
            return "its value was too large for the dead-letter topic; the request is still at its origin"
        return None

    def request(self) -> Outgoing:
        """Return the original request: the same bytes for the same partition, with the header ``x-replayed-from``."""
        return Outgoing(
            self._text(headers.ORIGIN_TOPIC),
            self.record.key,
            self.record.value,
            (*self._original_headers(), (headers.REPLAYED_FROM, self.place.encode())),
            self._number(headers.ORIGIN_PARTITION),
        )


def read_dead_letters(access: Access) -> Iterator[DeadLetter]:
    """Yield all dead letters up to now, in order per partition; none if the topic does not exist."""
    spans = access.cluster.spans(access.cluster.find(access.settings.dead_letter_topic) or [])
    return map(DeadLetter, access.read({partition: span.start for partition, span in spans.items()}))


def matches(fields: Mapping[str, Any], patterns: Iterable[tuple[str, str]]) -> bool:
    """Return whether the fields match the patterns: ``*``, ``?`` and ``[…]`` as in file names.

    Of several patterns for the same field, one must match. Every field with a pattern must match.
    """
    by_field = defaultdict(list)
    for name, pattern in patterns:
        by_field[name].append(pattern)
    return all(
        any(fnmatch.fnmatchcase(_shown(fields[name]), pattern) for pattern in patterns)
        for name, patterns in by_field.items()
    )


def _shown(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def place_of(partition: Partition, offset: int) -> str:
    """Return ``topic/partition/offset``."""
    return f"{partition.topic}/{partition.number}/{offset}"
