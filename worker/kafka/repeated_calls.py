"""Repeats calls of a client until the broker replies, however long an outage lasts."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

import confluent_kafka as ck
import structlog

from worker.errors import ClientFatalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = structlog.get_logger("kafka")

CALL_SECONDS = 3.0  # the longest wait of one call; the loop around it continues
PAUSE_SECONDS = 0.1  # between two calls, the first of which may have failed at once


class RepeatedCalls:
    """Waits for the broker without limit, and stops when it is closed.

    ``called_at`` is the monotonic time at which the last call of the client began. Any thread may read it.
    """

    def __init__(self) -> None:
        self.called_at = time.monotonic()
        self._closed = threading.Event()
        self._disturbed = False  # something went wrong, so a request may still be on its way

    def _repeat(self, call: Callable[[float], object], limit: float) -> ck.KafkaError | None:
        """Call until it succeeds (return None), fails permanently, or has failed for ``limit`` seconds.

        An outage ends, so repeating helps. The limit is for a defective client: one was seen that never found its
        coordinator again. When the transaction has timed out, a new client loses nothing.
        """
        started = time.monotonic()
        while True:
            self._begin_call()
            try:
                call(CALL_SECONDS)
            except ck.KafkaException as raised:
                error = error_of(raised)
                if not error.retriable():
                    return error
                self._disturbed = True
                if time.monotonic() - started > limit:
                    return error
                self._closed.wait(PAUSE_SECONDS)
            else:
                return None

    def _committed(self, properties: Mapping[str, Any], wanted: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """Return the group's committed positions. Wait without limit, because a result of hours may depend on them.

        ``properties`` are those of a consumer. Raise ClientFatalError without the permission, or when closed.
        """
        if not wanted:
            return []
        consumer = ck.Consumer(dict(properties))
        reported: set[str] = set()
        try:
            while True:
                self._begin_call()
                found, error = _read(consumer, wanted)
                if error is None:
                    return found
                if "AUTHORIZATION" in error.name():
                    fail(error)
                if error.name() not in reported:
                    reported.add(error.name())
                    warn(error)
                self._closed.wait(PAUSE_SECONDS)
        finally:
            consumer.close()

    def _begin_call(self) -> None:
        """Note the time. Raise ``ClientFatalError`` if this object is closed."""
        self._check_open()
        self.called_at = time.monotonic()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClientFatalError("closed while a transaction was under way")


def _read(
    consumer: ck.Consumer, wanted: list[ck.TopicPartition]
) -> tuple[list[ck.TopicPartition], ck.KafkaError | None]:
    """Return the reply, and its first error if there is one."""
    try:
        found = consumer.committed(wanted, CALL_SECONDS)
    except ck.KafkaException as raised:
        return [], error_of(raised)
    return found, next((partition.error for partition in found if partition.error), None)


def warn(error: ck.KafkaError) -> None:
    """Log an error for information. A fatal error is also raised by the call that it concerns."""
    log.warning("client.error", code=error.name(), reason=error.str())


def fail(error: ck.KafkaError) -> NoReturn:
    """Raise the error that ends the use of the client."""
    raise ClientFatalError(f"the transactional producer failed: {error.name()}: {error.str()}")


def error_of(raised: ck.KafkaException) -> ck.KafkaError:
    """Return the error in a client's exception."""
    error: ck.KafkaError = raised.args[0]
    return error


def discard(client: ck.Producer) -> None:
    """Abandon a producer without ``close()``, which does not return with an open transaction during an outage."""
    client.purge(blocking=False)
