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
    from worker.core.model import Failure
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
    """Encodes answers of one worker process. Not for two threads at once: the message is reused to save its making."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._message = message = Response(isprocessed=True, outcome=OK, worker=worker)
        # Kept, since looking a sub-message up costs as much as setting a field.
        self._origin, self._started, self._finished = message.origin, message.started_at, message.finished_at

    def ok(self, attempt: Attempt) -> bytes:
        """The answer with the handler's result."""
        message, task = self._message, attempt.task
        record, origin = task.record, self._origin
        message.result = attempt.result
        message.sequence = attempt.sequence
        message.attempt = task.attempt
        message.cpu_seconds = attempt.cpu_seconds
        origin.topic, origin.partition = record.partition
        origin.offset = record.offset
        started, finished = self._started, self._finished
        started.seconds, started.nanos = divmod(attempt.started_ns, _NANOS)
        finished.seconds, finished.nanos = divmod(attempt.finished_ns, _NANOS)
        return message.SerializeToString()

    def dead_lettered(self, attempt: Attempt, failure: Failure) -> bytes:
        """The answer to a request that went to the dead letters."""
        task, error = attempt.task, Error(type=failure.type, message=failure.message, traceback=failure.traceback)
        record = task.record
        message = Response(
            sequence=attempt.sequence,
            isprocessed=False,
            outcome=DEAD_LETTERED,
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
