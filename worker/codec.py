"""Encodes and decodes messages. Only this module imports the generated protobuf code."""

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
    from collections.abc import Callable

    from worker.core.model import Failure, Headers, Partition, Record
    from worker.core.model import Outcome as Attempt

__all__ = [
    "CANCELLED",
    "DEAD_LETTERED",
    "EXPIRED",
    "FAILED",
    "OK",
    "RUN_HEADER",
    "AnswerEncoder",
    "MalformedError",
    "Outcome",
    "Request",
    "Response",
    "decode_request",
    "decode_response",
    "encode_request",
    "name_of",
]

RUN_HEADER = "x-run"

_NANOS = 1_000_000_000
_MILLIS = 1_000
_NAMES = 64  # approximate size of an answer without its result
_REUSED = 65_536  # bytes after which a new message object is created
_YEAR_10000 = 253_402_300_800_000  # milliseconds since the epoch; protobuf's Timestamp ends here


class MalformedError(ValueError):
    """The bytes are not a message of the expected kind."""


def name_of(outcome: int) -> str:
    """Return the name of an outcome; its number if it has none here, because a newer program has written it."""
    return Outcome.Name(outcome) if outcome in Outcome.values() else str(outcome)


def encode_request(sequence: int, payload: str) -> bytes:
    """Return an encoded ``Request``. Raise ValueError if the sequence is outside int32."""
    return Request(sequence=sequence, payload=payload).SerializeToString()


def decode_request(value: bytes | None) -> Request:
    """Return the ``Request`` in a record's value. Raise MalformedError for null, empty or foreign bytes."""
    if not value:
        message = "null value" if value is None else "empty value"
        raise MalformedError(message)
    try:
        return Request.FromString(value)
    except DecodeError as error:
        message = f"not a Request: {error}"
        raise MalformedError(message) from None


def decode_response(value: bytes | None) -> Response:
    """Return the ``Response`` in a record's value. Raise MalformedError for anything else."""
    if not value:
        message = "null value" if value is None else "empty value"
        raise MalformedError(message)
    try:
        return Response.FromString(value)
    except DecodeError as error:
        message = f"not a Response: {error}"
        raise MalformedError(message) from None


def _run_of(headers: Headers) -> bytes | None:
    """Return the last ``x-run`` among the headers, or None."""
    for name, value in reversed(headers):
        if name == RUN_HEADER:
            return value
    return None


class AnswerEncoder:
    """Encodes answers of one worker process. Not thread-safe, because the message object is reused to save time.

    It is replaced from time to time: a message keeps the memory of everything that was ever set in it.
    """

    def __init__(self, worker: str, encode: Callable[[Response], bytes] = Response.SerializeToString) -> None:
        """``encode`` writes a message: see ``worker.formats``."""
        self._worker = worker
        self._encode = encode
        self._renew()

    def _renew(self) -> None:
        self._used = 0  # approximate bytes that were set in the message
        self._message = message = Response(isprocessed=True, outcome=OK, worker=self._worker)
        # Kept, because looking up a sub-message takes as long as setting a field.
        self._origin, self._started, self._finished = message.origin, message.started_at, message.finished_at
        self._requested = message.requested_at
        # The current values of these fields: most answers share them with the previous one.
        self._partition: Partition | None = None
        self._started_in = self._finished_in = 0  # the seconds of the times, in nanoseconds
        self._requested_in = 0  # the same in milliseconds
        self._run: bytes | None = None

    def ok(self, attempt: Attempt) -> bytes:
        """Return the answer with the handler's result."""
        self._used += len(attempt.result) + _NAMES
        if self._used > _REUSED:
            self._renew()
        message, task = self._message, attempt.task
        record = task.record
        message.result = attempt.result
        message.sequence = attempt.sequence
        message.attempt = task.attempt
        message.cpu_seconds = attempt.cpu_seconds
        self._set_request(record)
        self._set_times(attempt.started_ns, attempt.finished_ns)
        run = _run_of(record.headers) if record.headers else None
        if run != self._run:
            self._run = run
            message.run = (run or b"").decode(errors="replace")
        return self._encode(message)

    def _set_request(self, record: Record) -> None:
        origin, timestamp_ms = self._origin, record.timestamp_ms
        if record.partition is not self._partition:
            origin.topic, origin.partition = self._partition = record.partition
        origin.offset = record.offset
        if not 0 < timestamp_ms < _YEAR_10000:  # Kafka has none, or the producer has counted in microseconds
            self._message.ClearField("requested_at")
            self._requested, self._requested_in = self._message.requested_at, 0
            return
        millis = timestamp_ms - self._requested_in
        if not 0 <= millis < _MILLIS:
            self._requested.seconds, millis = divmod(timestamp_ms, _MILLIS)
            self._requested_in = timestamp_ms - millis
        self._requested.nanos = millis * 1_000_000

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
        """Return the answer to a request without a result. ``outcome`` is DEAD_LETTERED, EXPIRED or CANCELLED."""
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
        if attempt.started_ns:  # it has started
            message.started_at.FromNanoseconds(attempt.started_ns)
            message.finished_at.FromNanoseconds(attempt.finished_ns)
        if 0 < record.timestamp_ms < _YEAR_10000:
            message.requested_at.FromMilliseconds(record.timestamp_ms)
        if (run := _run_of(record.headers)) is not None:
            message.run = run.decode(errors="replace")
        return self._encode(message)
