"""The frames between the replica's reader of the state topic and its worker processes, over a Unix stream socket.

A frame has its length and its kind. A record continues with the lengths of key and value (-1 for a tombstone), the key
and the value. All others continue with a number and the partition of a request topic as text.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

from worker.core.model import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = struct.Struct("<IB")
_RECORD = struct.Struct("<Ii")
_NUMBER = struct.Struct("<Q")


class Kind(enum.IntEnum):
    """The kind of a frame."""

    HELLO = 0  # the name of a worker process
    FOLLOW = 1
    UNFOLLOW = 2
    BEGIN = 3
    RECORD = 4
    CAUGHT_UP = 5


class Frame(NamedTuple):
    """A frame that is not a record. ``text`` is the partition, or the name."""

    kind: Kind
    text: str
    number: int = 0

    @property
    def place(self) -> Partition:
        """Return the partition."""
        topic, _, number = self.text.rpartition("/")
        return Partition(topic, int(number))


class RecordFrame(NamedTuple):
    """A record of the state topic."""

    key: bytes
    value: bytes | None


def text_of(place: Partition) -> str:
    """Return a partition as text."""
    return f"{place.topic}/{place.number}"


def pack(frame: Frame | RecordFrame) -> bytes:
    """Return the bytes of a frame."""
    if isinstance(frame, RecordFrame):
        value = frame.value
        body = _RECORD.pack(len(frame.key), -1 if value is None else len(value)) + frame.key + (value or b"")
        return _HEAD.pack(len(body), Kind.RECORD) + body
    body = _NUMBER.pack(frame.number) + frame.text.encode()
    return _HEAD.pack(len(body), frame.kind) + body


def unpack(buffer: bytearray) -> Iterator[Frame | RecordFrame]:
    """Yield every complete frame at the beginning of ``buffer`` and remove it there."""
    at = 0
    try:
        while len(buffer) - at >= _HEAD.size:
            size, kind = _HEAD.unpack_from(buffer, at)
            if len(buffer) - at - _HEAD.size < size:
                return
            body = bytes(buffer[at + _HEAD.size : at + _HEAD.size + size])
            at += _HEAD.size + size
            yield _record(body) if kind == Kind.RECORD else _frame(Kind(kind), body)
    finally:
        del buffer[:at]


def _record(body: bytes) -> RecordFrame:
    key, value = _RECORD.unpack_from(body)
    rest = body[_RECORD.size :]
    return RecordFrame(rest[:key], None if value < 0 else rest[key:])


def _frame(kind: Kind, body: bytes) -> Frame:
    (number,) = _NUMBER.unpack_from(body)
    return Frame(kind, body[_NUMBER.size :].decode(), number)
