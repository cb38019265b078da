"""What preflight is asked and what it answers: plain values, which travel to a child process and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from worker.kafka.diagnosis import Need


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be reached, and with what properties; these hold secrets."""

    request_topics: tuple[str, ...]
    ack_topic: str
    dead_letter_topic: str
    group: str
    connect_timeout: float  # seconds
    consumers: dict[str, dict[str, Any]] = field(repr=False)  # by group protocol
    producer: dict[str, Any] = field(repr=False)
    admin: dict[str, Any] = field(repr=False)

    @property
    def needs(self) -> tuple[Need, ...]:
        """What we must be allowed to do with which topic."""
        requests = (Need("KAFKA_REQUEST_TOPIC", topic, "READ") for topic in self.request_topics)
        return (
            *requests,
            Need("KAFKA_ACK_TOPIC", self.ack_topic, "WRITE"),
            Need("KAFKA_DEAD_LETTER_TOPIC", self.dead_letter_topic, "WRITE"),
        )

    @property
    def bootstrap(self) -> str:
        """The broker list, for messages."""
        return str(self.admin["bootstrap.servers"])


@dataclass(frozen=True, slots=True)
class Facts:
    """What the broker said. Bytes are of a record's key, value and headers together."""

    partitions: int  # of all request topics together
    max_answer_bytes: int
    max_dead_letter_bytes: int
    warnings: tuple[str, ...] = ()
