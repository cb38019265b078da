"""Requests for the stack of a running task and the replies, as records on the state topic. Pure.

The keys are ``stack:topic/partition/offset`` and ``stack-reply:topic/partition/offset``; the values are JSON. The
writer of the request removes both records afterwards, because they are not state.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from worker.state.records import parse_origin

if TYPE_CHECKING:
    from worker.core.task_state import Origin

REQUEST_PREFIX = "stack:"
REPLY_PREFIX = "stack-reply:"
TEXT_LIMIT = 300_000  # characters of a reply


class StackRequest(NamedTuple):
    """A request for the stack of a task. ``number`` identifies the request. The time is in seconds since the epoch."""

    origin: Origin
    number: str
    requested_at: float
    native: bool = False  # with the frames of C extensions


class StackReply(NamedTuple):
    """A reply. ``text`` has the stacks, or the reason why they cannot be read (``good`` is False)."""

    origin: Origin
    number: str
    worker: str
    text: str
    good: bool


def request_key(origin: Origin) -> bytes:
    """Return the key of a request."""
    return f"{REQUEST_PREFIX}{origin}".encode()


def reply_key(origin: Origin) -> bytes:
    """Return the key of its reply."""
    return f"{REPLY_PREFIX}{origin}".encode()


def encode(record: StackRequest | StackReply) -> bytes:
    """Return the value of a record. A very long text is cut."""
    fields = {name: value for name, value in record._asdict().items() if name != "origin"}
    if isinstance(record, StackReply):
        fields["text"] = record.text[:TEXT_LIMIT]
    return json.dumps(fields).encode()


def decode(key: bytes | None, value: bytes | None) -> StackRequest | StackReply | None:
    """Return what a record says; None if it is neither kind, or a tombstone. Never raise."""
    try:
        prefix, colon, text = (key or b"").decode().rpartition(":")
        if prefix + colon not in {REQUEST_PREFIX, REPLY_PREFIX}:
            return None
        origin, fields = parse_origin(text), json.loads(value or b"")
        if prefix + colon == REQUEST_PREFIX:
            return StackRequest(origin, str(fields["number"]), float(fields["requested_at"]), bool(fields["native"]))
        number, name, text = (str(fields[field]) for field in ("number", "worker", "text"))
        return StackReply(origin, number, name, text, bool(fields["good"]))
    except (ValueError, OverflowError, KeyError, TypeError, RecursionError):
        return None
