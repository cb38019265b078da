"""Bytes to messages and back: the only importer of the generated protobuf code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from worker.pb.task_pb2 import (
    CANCELLED,
    DEAD_LETTERED,
    EXPIRED,
    FAILED,
    OK,
    Error,
    Origin,
    Outcome,
    Request,
    Response,
)

if TYPE_CHECKING:
    from worker.core.model import Failure, Partition, Record
    from worker.core.model import Outcome as Attempt

__all__ = [
    "CANCELLED",
    "DEAD_LETTERED",
    "EXPIRED",
    "FAILED",
    "OK",
    "AnswerEncoder",
    "MalformedError",
    "Outcome",
    "Request",
    "Response",
    "decode_request",
    "decode_response",
    "encode_request",
]

_NANOS = 1_000_000_000
_NAMES = 64  # bytes of an answer beside its result, about
_REUSED = 65_536  # bytes after which a new message is made


class MalformedError(ValueError):
    """Bytes that are no message of the expected kind."""


def encode_request(sequence: int, payload: str) -> bytes:
    """A ``Request``. A sequence outside int32 raises ValueError."""
    return Request(sequence=sequence, payload=payload).SerializeToString()


def decode_request(value: bytes | None) -> Request:
    """The ``Request`` in a record's value. Null, empty or foreign bytes raise MalformedError."""
    if not value:
        message = "null value" if value is None else "empty value"
        raise MalformedError(message)
    try:
        return Request.FromString(value)
    except DecodeError as error:
        message = f"not a Request: {error}"
        raise MalformedError(message) from None


def decode_response(value: bytes | None) -> Response:
    """The ``Response`` in a record's value; anything else raises MalformedError."""
    if not value:
        message = "null value" if value is None else "empty value"
        raise MalformedError(message)
    try:
        return Response.FromString(value)
    except DecodeError as error:
        message = f"not a Response: {error}"
        raise MalformedError(message) from None


class AnswerEncoder:
    """Encodes answers of one worker process. Not for two threads at once: the message is reused to save its making.

    Only for a while: what was once set in a message stays in its memory until the message is gone.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._renew()

    def _renew(self) -> None:
        self._used = 0  # bytes that were set in the message, about
        self._message = message = Response(isprocessed=True, outcome=OK, worker=self._worker)
        # Kept, since looking a sub-message up costs as much as setting a field.
        self._origin, self._started, self._finished = message.origin, message.started_at, message.finished_at
        # What these say now: most answers have it in common with the one before.
        self._partition: Partition | None = None
        self._started_in = self._finished_in = 0  # the seconds of the times, as nanoseconds

    def ok(self, attempt: Attempt) -> bytes:
        """The answer with the handler's result."""
        self._used += len(attempt.result) + _NAMES
        if self._used > _REUSED:
            self._renew()
        message, task = self._message, attempt.task
        message.result = attempt.result
        message.sequence = attempt.sequence
        message.attempt = task.attempt
        message.cpu_seconds = attempt.cpu_seconds
        self._set_origin(task.record)
        self._set_times(attempt.started_ns, attempt.finished_ns)
        return message.SerializeToString()

    def _set_origin(self, record: Record) -> None:
        origin = self._origin
        if record.partition is not self._partition:
            origin.topic, origin.partition = self._partition = record.partition
        origin.offset = record.offset

    def _set_times(self, started_ns: int, finished_ns: int) -> None:
        nanos = started_ns - self._started_in
        if not 0 <= nanos < _NANOS:
            self._started.seconds, nanos = divmod(started_ns, _NANOS)
            self._started_in = started_ns - nanos
        self._started.nanos = nanos
        nanos = finished_ns - self._finished_in
        if not 0 <= nanos < _NANOS:
            self._finished.seconds, nanos = divmod(finished_ns, _NANOS)
            self._finished_in = finished_ns - nanos
        self._finished.nanos = nanos

    def unprocessed(self, attempt: Attempt, failure: Failure, outcome: str) -> bytes:
        """The answer to a request that has no result; ``outcome`` is DEAD_LETTERED, EXPIRED or CANCELLED."""
        task, error = attempt.task, Error(type=failure.type, message=failure.message, traceback=failure.traceback)
        record = task.record
        message = Response(
            sequence=attempt.sequence,
            isprocessed=False,
            outcome=outcome,
            error=error,
            origin=Origin(topic=record.partition.topic, partition=record.partition.number, offset=record.offset),
            attempt=task.attempt,
            worker=self._worker,
            cpu_seconds=attempt.cpu_seconds,
        )
        if attempt.started_ns:  # it was started at all
            message.started_at.FromNanoseconds(attempt.started_ns)
            message.finished_at.FromNanoseconds(attempt.finished_ns)
        return message.SerializeToString()
