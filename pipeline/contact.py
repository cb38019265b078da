"""A new client's first contact with the brokers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import confluent_kafka as ck

if TYPE_CHECKING:
    from typing import Protocol

    class Client(Protocol):
        """A producer or a consumer."""

        def list_topics(self, topic: str, timeout: float) -> object: ...


_SECONDS = 5.0


def meet(client: Client, topic: str) -> None:
    """Wait for the first connection, and for where the topic is: 0.07 s to the first record instead of 0.56 s.

    A question that the client asks before it has both is asked again only after half a second. What fails here will
    fail, or be tried again, where it is needed.
    """
    with contextlib.suppress(ck.KafkaException):
        client.list_topics(topic, timeout=_SECONDS)
