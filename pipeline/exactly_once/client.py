"""The first contact of a new client with the brokers and with a new topic."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, TypeVar

import confluent_kafka as ck

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Client(Protocol):
        """A producer or a consumer."""

        def list_topics(self, topic: str, timeout: float) -> object: ...


_SECONDS = 5.0
UNKNOWN = {ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001 - public in spite of its name
_PASSING = {ck.KafkaError.NOT_LEADER_FOR_PARTITION, ck.KafkaError.LEADER_NOT_AVAILABLE}
R = TypeVar("R")


def wait_for_metadata(client: Client, topic: str) -> None:
    """Wait for the first connection and the topic's leaders: 0.07 s to the first record instead of 0.56 s.

    A request that the client makes earlier is repeated only after half a second. Errors are ignored here. They occur
    again, or the request is repeated, where the caller needs the answer.
    """
    with contextlib.suppress(ck.KafkaException):
        client.list_topics(topic, timeout=_SECONDS)


def retry_transient(request: Callable[[], R], seconds: float, *, exists: bool = False) -> R:
    """Return the result of ``request``, and repeat it for up to ``seconds`` while a leader moves.

    If the topic ``exists``, also repeat it while a broker does not know the topic: brokers learn of a new topic at
    different times.
    """
    passing = _PASSING | UNKNOWN if exists else _PASSING
    end = time.monotonic() + seconds
    while True:
        try:
            return request()
        except ck.KafkaException as error:
            if error.args[0].code() not in passing or time.monotonic() > end:
                raise
        time.sleep(0.1)
