"""A new client's first contact with the brokers, and a new topic's."""

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


def meet(client: Client, topic: str) -> None:
    """Wait for the first connection, and for where the topic is: 0.07 s to the first record instead of 0.56 s.

    A question that the client asks before it has both is asked again only after half a second. What fails here will
    fail, or be tried again, where it is needed.
    """
    with contextlib.suppress(ck.KafkaException):
        client.list_topics(topic, timeout=_SECONDS)


def patiently(ask: Callable[[], R], seconds: float, *, exists: bool = False) -> R:
    """What ``ask`` returns; asked again for so long while a leader moves, and if the topic is said not to be there
    although it ``exists``: a new one is not known to all brokers at once.
    """
    passing = _PASSING | UNKNOWN if exists else _PASSING
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except ck.KafkaException as error:
            if error.args[0].code() not in passing or time.monotonic() > end:
                raise
        time.sleep(0.1)
