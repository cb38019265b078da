"""Encodes and decodes the records of the state topic.

=============  ================================  ========================================================
record         key                               value
=============  ================================  ========================================================
task state     ``topic/partition/offset``        ``TaskState``; null once the request is settled
cancel         ``cancel:topic/partition/offset`` ``CancelRequest``; null once the request has been reached
=============  ================================  ========================================================

Both records of a request are in the same partition of the state topic: produce them with
``partition=partition_of(origin, count)``.

``TaskState.state`` is ``running``, ``cancelling``, ``waiting`` or ``detached`` (``worker.core.task_state``). While a
task runs, its record is written at least every ``HEARTBEAT_SECONDS``. A record in state ``waiting`` belongs to a
request that is not running; its checkpoint is kept for the next start.

To cancel a request, write a ``CancelRequest``. The process that owns the partition of the request writes the tombstone
of that key as soon as the cancellation has reached the request:

* If it has not started, or waits for its next attempt, it is answered ``CANCELLED``. Then the tombstone is written.
* If it runs, it is asked to stop, and its state becomes ``cancelling``. When that is confirmed, the tombstone is
  written. A process that takes over a request in this state cancels it, too.
* If it is already answered, the tombstone is written at once.

So the tombstone of the cancel key means "reached". A request that is not fetched yet is cancelled when it is fetched;
until then the cancel record stays.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from google.protobuf.message import DecodeError

from worker.core.task_state import CHECKPOINT_LIMIT, HEARTBEAT_SECONDS, CancelRequest, Origin, TaskState
from worker.pb import state_pb2, task_pb2

__all__ = [
    "CANCEL_PREFIX",
    "CHECKPOINT_LIMIT",
    "HEARTBEAT_SECONDS",
    "CancelRequest",
    "Origin",
    "Removed",
    "StateRecord",
    "TaskState",
    "cancel_key",
    "decode",
    "encode_cancel",
    "encode_state",
    "format_origin",
    "parse_origin",
    "partition_of",
    "state_key",
]

CANCEL_PREFIX = "cancel:"
_MESSAGE_LIMIT = 1_000  # the longest progress message that is kept, in characters
_KEY_LIMIT = 10_000  # bytes; a longer key of a request is left out


class Removed(NamedTuple):
    """A tombstone: of the cancel request if ``cancel``, otherwise of the state."""

    origin: Origin
    cancel: bool


StateRecord = TaskState | CancelRequest | Removed


def format_origin(origin: Origin) -> str:
    """``topic/partition/offset``."""
    return str(origin)


def parse_origin(text: str) -> Origin:
    """Return the origin in ``topic/partition/offset``. Raise ValueError with "must be …"."""
    topic, _, rest = text.strip().partition("/")
    partition, _, offset = rest.partition("/")
    if not (topic and _is_number(partition) and _is_number(offset)):
        raise ValueError("must be topic/partition/offset, such as requests/0/17")
    return Origin(topic, int(partition), int(offset))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def state_key(origin: Origin) -> bytes:
    """Return the key of the request's state."""
    return str(origin).encode()


def cancel_key(origin: Origin) -> bytes:
    """Return the key of a cancel request."""
    return f"{CANCEL_PREFIX}{origin}".encode()


def partition_of(origin: Origin, count: int) -> int:
    """Return the partition for this request, of a state topic with ``count`` partitions."""
    return zlib.crc32(state_key(origin)) % count


def encode_state(state: TaskState) -> bytes:
    """Return the value of a state record. A long message is shortened, and a very long key is left out."""
    message = state_pb2.TaskState(
        origin=_origin(state.origin),
        key=state.key if len(state.key) <= _KEY_LIMIT else b"",
        sequence=state.sequence,
        worker=state.worker,
        attempt=state.attempt,
        epoch=state.epoch,
        progress=state.progress,
        message=state.message[:_MESSAGE_LIMIT],
        checkpoint=state.checkpoint,
        state=state.state,
        run=state.run,
        checkpoint_epoch=state.checkpoint_epoch,
    )
    message.started_at.FromNanoseconds(state.started_ns)
    message.updated_at.FromNanoseconds(state.updated_ns)
    return message.SerializeToString()


def encode_cancel(request: CancelRequest) -> bytes:
    """Return the value of a cancel record."""
    message = state_pb2.CancelRequest(origin=_origin(request.origin), reason=request.reason)
    message.requested_at.FromNanoseconds(request.requested_ns)
    return message.SerializeToString()


def decode(key: bytes | None, value: bytes | None) -> StateRecord | None:
    """Return what a record of the state topic says; None if it is not ours. Never raise."""
    try:
        text = (key or b"").decode()
        cancel = text.startswith(CANCEL_PREFIX)
        origin = parse_origin(text.removeprefix(CANCEL_PREFIX))
        if value is None:
            return Removed(origin, cancel)
        found = _cancel(value) if cancel else _state(value)
    except (ValueError, DecodeError):  # also bytes that are not text, and impossible times
        return None
    return found if found.origin == origin else None


def _origin(origin: Origin) -> task_pb2.Origin:
    return task_pb2.Origin(topic=origin.topic, partition=origin.partition, offset=origin.offset)


def _origin_of(message: task_pb2.Origin) -> Origin:
    return Origin(message.topic, message.partition, message.offset)


def _cancel(value: bytes) -> CancelRequest:
    message = state_pb2.CancelRequest.FromString(value)
    return CancelRequest(_origin_of(message.origin), message.requested_at.ToNanoseconds(), message.reason)


def _state(value: bytes) -> TaskState:
    message = state_pb2.TaskState.FromString(value)
    return TaskState(
        _origin_of(message.origin),
        message.worker,
        message.epoch,
        message.started_at.ToNanoseconds(),
        message.updated_at.ToNanoseconds(),
        message.attempt,
        message.key,
        message.sequence,
        message.progress if message.HasField("progress") else None,
        message.message,
        message.checkpoint,
        message.state,
        message.run,
        message.checkpoint_epoch,
    )
