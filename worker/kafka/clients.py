"""Common parts of all clients: errors as values, and exceptions of callbacks.

Callbacks run inside ``poll``, ``flush`` and ``close``. If an exception leaves a callback, the client loses records. So
the first exception is kept, and raised when the client's call has returned.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import structlog

from worker.errors import ClientFatalError
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from worker.core.model import Partition
    from worker.kafka.ports import Position

log = structlog.get_logger("kafka")

# The client's time-out, in seconds, for a request to a group's coordinator. Callers wait for a much shorter time. If
# the request timed out while the client still looks for the coordinator, and the coordinator was found later, the
# client would end the process (docs/decisions/0074).
UNTIMED = 3600.0

# For a client that joins no group and reads given partitions. It skips records that retention has removed meanwhile.
READING = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
}

FATAL = ck.KafkaError._FATAL  # noqa: SLF001 - a public constant of the client in spite of its name


def failure_of(error: ck.KafkaError) -> KafkaFailure:
    """Return the client's error as a value."""
    return KafkaFailure(error.name(), error.str(), error.retriable())


def topic_partitions(positions: Mapping[Partition, Position]) -> list[ck.TopicPartition]:
    """Return positions in the client's form."""
    return [ck.TopicPartition(p.topic, p.number, at.offset, at.metadata) for p, at in positions.items()]


def at_offsets(offsets: Mapping[Partition, int]) -> list[ck.TopicPartition]:
    """Return offsets in the client's form."""
    return [ck.TopicPartition(p.topic, p.number, offset) for p, offset in offsets.items()]


def without_offsets(partitions: Iterable[Partition]) -> list[ck.TopicPartition]:
    """Return partitions in the client's form."""
    return [ck.TopicPartition(p.topic, p.number) for p in partitions]


def one_line(error: ck.KafkaError | ck.KafkaException) -> str:
    """Return the client's error as its name and text."""
    cause = error.args[0] if isinstance(error, ck.KafkaException) else error
    return f"{cause.name()}: {cause.str()}"


def quiet(properties: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> dict[str, Any]:
    """Return properties of a client that reports its errors to ``on_error`` and logs nothing itself."""
    logger = logging.getLogger("worker.kafka.tools")
    logger.disabled = True
    return {**properties, "logger": logger, "error_cb": on_error}


class CallbackErrors:
    """Keeps the first exception of a callback until the client's call has returned."""

    def __init__(self) -> None:
        self._kept: BaseException | None = None

    def call(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call the callback and keep any exception that it raises."""
        try:
            callback(*arguments)
        except BaseException as error:  # noqa: BLE001 - kept, and raised by check()
            self.keep(error)

    def keep(self, error: BaseException) -> None:
        """Keep an exception, unless there is already one."""
        self._kept = self._kept or error

    def check(self) -> None:
        """Raise the kept exception, once."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            raise kept


def report_error(errors: CallbackErrors, error: ck.KafkaError) -> None:
    """Log an error that a client reports to its callback. Keep it if it is fatal."""
    if error.fatal() or error.code() == FATAL:
        errors.keep(ClientFatalError(f"the Kafka client failed: {error.name()}: {error.str()}"))
    else:
        log.warning("client.error", code=error.name(), reason=error.str())


def with_error_callback(
    properties: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None], **more: Any
) -> dict[str, Any]:
    """Return properties of a client whose errors go to ``on_error`` and whose log lines go to our log."""
    return {**properties, "error_cb": on_error, "logger": logging.getLogger("librdkafka"), **more}


def with_callbacks(properties: Mapping[str, Any], errors: CallbackErrors, **more: Any) -> dict[str, Any]:
    """Return properties of a client whose errors are reported or kept, and whose log lines go to our log."""
    return with_error_callback(properties, functools.partial(report_error, errors), **more)
