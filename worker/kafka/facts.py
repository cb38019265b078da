"""The input and the result of preflight: plain values that are passed to a child process and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from worker.kafka.diagnosis import Need

HEARTBEAT = 5.0  # seconds: the broker's default for the consumer protocol
_STATE_RIGHTS = ("READ", "WRITE")


@dataclass(frozen=True, slots=True)
class Target:
    """The topics and the group to check, and the client properties for them, which contain secrets."""

    request_topics: tuple[str, ...]
    ack_topic: str
    dead_letter_topic: str
    group: str
    connect_timeout: float  # seconds
    consumers: dict[str, dict[str, Any]] = field(repr=False)  # by group protocol
    producer: dict[str, Any] = field(repr=False)
    admin: dict[str, Any] = field(repr=False)
    state_topic: str = ""  # empty: none

    @property
    def needs(self) -> tuple[Need, ...]:
        """Return the permissions that we need on topics."""
        requests = (Need("KAFKA_REQUEST_TOPIC", topic, "READ") for topic in self.request_topics)
        return (
            *requests,
            Need("KAFKA_ACK_TOPIC", self.ack_topic, "WRITE"),
            Need("KAFKA_DEAD_LETTER_TOPIC", self.dead_letter_topic, "WRITE"),
            *(Need("KAFKA_STATE_TOPIC", self.state_topic, right) for right in _STATE_RIGHTS if self.state_topic),
        )

    @property
    def bootstrap(self) -> str:
        """Return the broker list, for messages to the user."""
        return str(self.admin["bootstrap.servers"])


@dataclass(frozen=True, slots=True)
class Facts:
    """What the broker reported. Byte limits cover a record's key, value and headers together."""

    partitions: int  # of all request topics
    max_answer_bytes: int
    max_dead_letter_bytes: int
    warnings: tuple[str, ...] = ()
    heartbeat: float = HEARTBEAT  # seconds between two heartbeats of a member
    state_partitions: int = 0  # of the state topic
