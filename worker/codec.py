"""Bytes to messages and back: the only importer of the generated protobuf code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from worker.pb.task_pb2 import CANCELLED, DEAD_LETTERED, EXPIRED, FAILED, OK, Outcome, Request, Response

if TYPE_CHECKING:
    from worker.core.model import Failure, Task
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
        self._message = Response(isprocessed=True, outcome=OK, worker=worker)
        self._worker = worker

    def ok(self, attempt: Attempt) -> bytes:
        """The answer with the handler's result."""
        message = self._message
        message.result = attempt.result
        self._fill(message, attempt)
        return message.SerializeToString()

    def dead_lettered(self, attempt: Attempt, failure: Failure) -> bytes:
        """The answer to a request that went to the dead letters."""
        message = Response(isprocessed=False, outcome=DEAD_LETTERED, worker=self._worker)
        message.error.type = failure.type
        message.error.message = failure.message
        message.error.traceback = failure.traceback
        self._fill(message, attempt)
        return message.SerializeToString()

    @staticmethod
    def _fill(message: Response, attempt: Attempt) -> None:
        task: Task = attempt.task
        partition, offset = task.record.partition, task.record.offset
        message.sequence = attempt.sequence
        message.attempt = task.attempt
        message.cpu_seconds = attempt.cpu_seconds
        origin = message.origin
        origin.topic, origin.partition, origin.offset = partition[0], partition[1], offset
        if attempt.started_ns:
            started, finished = message.started_at, message.finished_at
            started.seconds, started.nanos = divmod(attempt.started_ns, _NANOS)
            finished.seconds, finished.nanos = divmod(attempt.finished_ns, _NANOS)
