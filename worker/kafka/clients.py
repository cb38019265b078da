"""What the clients have in common: errors as values, and callbacks that may raise.

Callbacks run inside ``poll``, ``flush`` and ``close``. An exception that left one would lose records inside the client,
so the first is kept and raised when the client's call has returned.
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
    from collections.abc import Callable, Mapping

log = structlog.get_logger("kafka")

# Seconds that an administrator's question to a group's coordinator gets from the client; who asks waits much shorter.
# If they are over while the client still looks for the coordinator, which is found later, the client ends the process
# (docs/decisions/0074).
UNTIMED = 3600.0

FATAL = ck.KafkaError._FATAL  # noqa: SLF001 - a public constant of the client in spite of its name


def failure_of(error: ck.KafkaError) -> KafkaFailure:
    """The client's error as a value of ours."""
    return KafkaFailure(error.name(), error.str(), error.retriable())


class Guard:
    """Keeps the first exception of a callback until the client's call is over."""

    def __init__(self) -> None:
        self._kept: BaseException | None = None

    def call(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call it, and keep what it raises."""
        try:
            callback(*arguments)
        except BaseException as error:  # noqa: BLE001 - kept, and raised by check()
            self.keep(error)

    def keep(self, error: BaseException) -> None:
        """Keep it, unless another was first."""
        self._kept = self._kept or error

    def check(self) -> None:
        """Raise what was kept."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            raise kept


def note_error(guard: Guard, error: ck.KafkaError) -> None:
    """The client's error callback: information, unless it is fatal."""
    if error.fatal() or error.code() == FATAL:
        guard.keep(ClientFatalError(f"the Kafka client failed: {error.name()}: {error.str()}"))
    else:
        log.warning("client.error", code=error.name(), reason=error.str())


def with_callbacks(properties: Mapping[str, Any], guard: Guard, **more: Any) -> dict[str, Any]:
    """Properties of a client whose errors and log lines come to us."""
    return {
        **properties,
        "error_cb": functools.partial(note_error, guard),
        "logger": logging.getLogger("librdkafka"),
        **more,
    }
