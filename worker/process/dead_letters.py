"""Dead letters: the original record, with headers that tell where it came from and why it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.core.model import Failure
from worker.headers import (
    ATTEMPTS,
    ERROR_MESSAGE,
    ERROR_TYPE,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    VALUE_DROPPED,
)

if TYPE_CHECKING:
    from worker.core.model import Headers, Task

MESSAGE_LIMIT = 1_000  # bytes of the error message that a header keeps
_ADDED_HEADERS = 7  # including the one that says that the value is missing
RECORD_OVERHEAD = 128  # bytes of a batch beside key, value and headers; an upper bound for one record


class DeadLetter(NamedTuple):
    """A record for the dead-letter topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def dead_letter(task: Task, failure: Failure, limit: int) -> DeadLetter:
    """Return the dead letter of a task.

    Key, value and headers are kept byte for byte. If the record would exceed ``limit`` bytes, the maximum of the topic,
    the value is left out and a header says so. The original is still at its origin.
    """
    record = task.record
    origin = record.partition
    added: Headers = (
        (ORIGIN_TOPIC, origin.topic.encode()),
        (ORIGIN_PARTITION, str(origin.number).encode()),
        (ORIGIN_OFFSET, str(record.offset).encode()),
        (ATTEMPTS, str(task.attempt).encode()),
        (ERROR_TYPE, failure.type.encode(errors="replace")),
        (ERROR_MESSAGE, _shortened(failure.message)),
    )
    record_and_reason = DeadLetter(record.key, record.value, record.headers + added)
    fits = size_of(*record_and_reason) <= limit
    return record_and_reason if fits else without_value(record_and_reason)


def _shortened(message: str) -> bytes:
    """Return as much of the message as fits into a header, in whole characters."""
    return message.encode(errors="replace")[:MESSAGE_LIMIT].decode(errors="ignore").encode()


def without_value(full: DeadLetter) -> DeadLetter:
    """Return the dead letter without its value."""
    return DeadLetter(full.key, None, (*full.headers, (VALUE_DROPPED, b"too large for this topic")))


def reduced(full: DeadLetter) -> DeadLetter | None:
    """Return a smaller dead letter after the topic has refused this one; None if nothing is left to drop.

    The value is dropped first, then the key and the original headers. Our own headers, which tell where the original
    is, are always kept.
    """
    if full.headers[-1][0] != VALUE_DROPPED:
        return without_value(full)
    bare = DeadLetter(None, None, full.headers[-_ADDED_HEADERS:])
    return None if bare == full else bare


def size_of(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return the most bytes that a record takes in its batch."""
    size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD
    return size + size_of_headers(headers) if headers else size


def size_of_headers(headers: Headers) -> int:
    """Return the most bytes that headers take in a record."""
    return sum([len(name) * 4 + len(content or b"") + 10 for name, content in headers])


def oversized(size: int, topic: str, limit: int) -> Failure:
    """Return the failure that replaces an answer of ``size`` bytes, which is too large."""
    return Failure("OversizedResult", f"the answer has {size} bytes; {topic} takes {limit}")
