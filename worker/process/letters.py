"""What a dead letter looks like: the original record and, in headers, where it came from and why it is here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.core.model import Failure

if TYPE_CHECKING:
    from worker.core.model import Headers, Task

MESSAGE_LIMIT = 1_000  # bytes of the error message kept in a header
_OWN_HEADERS = 7  # with the one that says that the value is missing
RECORD_OVERHEAD = 128  # bytes a record batch needs beside key, value and headers; an upper bound for one record


class DeadLetter(NamedTuple):
    """A record for the dead-letter topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def dead_letter(task: Task, failure: Failure, limit: int) -> DeadLetter:
    """The dead letter of a task.

    Key, value and headers are kept byte for byte. Only where the whole would not fit into ``limit`` bytes, the most the
    topic takes, is the value left out and a header says so: the original still stands at its origin.
    """
    record = task.record
    origin = record.partition
    added: Headers = (
        ("x-origin-topic", origin.topic.encode()),
        ("x-origin-partition", str(origin.number).encode()),
        ("x-origin-offset", str(record.offset).encode()),
        ("x-attempts", str(task.attempt).encode()),
        ("x-error-type", failure.type.encode(errors="replace")),
        ("x-error-message", _shortened(failure.message)),
    )
    letter = DeadLetter(record.key, record.value, record.headers + added)
    return letter if size_of(*letter) <= limit else without_value(letter)


def _shortened(message: str) -> bytes:
    """As much of the message as a header takes, never half a character."""
    return message.encode(errors="replace")[:MESSAGE_LIMIT].decode(errors="ignore").encode()


def without_value(letter: DeadLetter) -> DeadLetter:
    """The same without its value."""
    return DeadLetter(letter.key, None, (*letter.headers, ("x-value-dropped", b"too large for this topic")))


def reduced(letter: DeadLetter) -> DeadLetter | None:
    """What to send instead of a letter that its topic does not take; None if nothing is left that can be spared.

    First without its value, then without its key and the original's headers: ours, which tell where the original
    stands, come last.
    """
    if letter.headers[-1][0] != "x-value-dropped":
        return without_value(letter)
    bare = DeadLetter(None, None, letter.headers[-_OWN_HEADERS:])
    return None if bare == letter else bare


def size_of(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Bytes a record takes in its batch, at most."""
    size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD
    for name, content in headers:
        size += len(name) * 4 + len(content or b"") + 10
    return size


def oversized(size: int, topic: str, limit: int) -> Failure:
    """Why there is a dead letter instead of an answer of ``size`` bytes."""
    return Failure("OversizedResult", f"the answer has {size} bytes; {topic} takes {limit}")
