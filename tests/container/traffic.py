"""Requests and answers on a real broker, for one check of the proof."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from worker.codec import Response, decode_response, encode_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Queue:
    """Topics of one check on a real broker."""

    bootstrap: str
    name: str

    def create(self) -> None:
        topics = [
            NewTopic(self.requests, PARTITIONS, 1),
            NewTopic(self.answers_topic, PARTITIONS, 1),
            NewTopic(f"{self.requests}.dlq", 1, 1),
        ]
        admin = self._admin()
        for done in admin.create_topics(topics).values():
            done.result(30)

    def delete(self) -> None:
        admin = self._admin()
        for done in admin.delete_topics([self.requests, self.answers_topic, f"{self.requests}.dlq"]).values():
            done.result(30)

    @property
    def requests(self) -> str:
        return f"{self.name}.requests"

    @property
    def answers_topic(self) -> str:
        return f"{self.name}.answers"

    def environment(self, handler: str, **more: str) -> dict[str, str]:
        return {
            "KAFKA_BOOTSTRAP_SERVER": self.bootstrap,
            "KAFKA_REQUEST_TOPIC": self.requests,
            "KAFKA_ACK_TOPIC": self.answers_topic,
            "KAFKA_CONSUMER_GROUP_ID": self.name,
            "WORKER_HANDLER": handler,
            **more,
        }

    def submit(self, payloads: Iterable[str]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for sequence, payload in enumerate(payloads):
            producer.produce(self.requests, encode_request(sequence, payload), partition=sequence % PARTITIONS)
        assert producer.flush(30) == 0

    def answers(self, expected: int, seconds: float, alive: Callable[[], bool] = lambda: True) -> list[Response]:
        """Return all answers. Wait for the expected number, and a second more for one too many."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.answers_topic, number, 0) for number in range(PARTITIONS)])
        found: list[Response] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and alive():
            for message in consumer.consume(100, 0.2):
                assert message.error() is None, message.error()
                found.append(decode_response(message.value()))
                if len(found) == expected:
                    deadline = min(deadline, time.monotonic() + 1)
        consumer.close()
        return found

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})
