"""The bare loop, the minimum of a consumer that sends answers: ``python -m benchmarks.baselines PARTITIONS``.

The worker's variables name topics, group and broker. Partitions are assigned instead of subscribed to. The loop thus
spends no time in a group and starts at once, which is an advantage for it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka as ck

from benchmarks.traffic import produce
from worker.codec import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

POLL = 0.1  # seconds
BATCH = 5000  # near the loop's maximum speed: ten times more changes nothing


class Clients(NamedTuple):
    """The Kafka clients, and the topic of the answers."""

    consumer: ck.Consumer
    producer: ck.Producer
    ack_topic: str


def connect(partitions: list[int]) -> Clients:
    """Return clients with default settings, except those that the worker's guarantees also require."""
    servers = os.environ["KAFKA_BOOTSTRAP_SERVER"]
    consumer = ck.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": os.environ["KAFKA_CONSUMER_GROUP_ID"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([ck.TopicPartition(os.environ["KAFKA_REQUEST_TOPIC"], number) for number in partitions])
    producer = ck.Producer({"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random"})
    return Clients(consumer, producer, os.environ["KAFKA_ACK_TOPIC"])


def bare(clients: Clients, going: Callable[[], bool]) -> None:
    """Consume a batch, parse, produce, flush, and commit once per batch. Answers have the contract's fields 1 and 2."""
    consumer, producer, ack_topic = clients
    while going():
        first = consumer.poll(POLL)
        if first is None:
            continue
        for message in [first, *consumer.consume(BATCH - 1, 0)]:
            request = Request.FromString(_value(message))
            answer = Response(sequence=request.sequence, isprocessed=True).SerializeToString()
            produce(producer, ack_topic, answer, message.key())
        producer.flush()
        consumer.commit(asynchronous=False)


def _value(message: ck.Message) -> bytes:
    if message.error() is not None:
        raise SystemExit(f"consuming failed: {message.error()}")
    value: Any = message.value()  # bytes: no deserializer is set
    return bytes(value)


def main(partitions: str) -> None:
    """Run until a signal to stop."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: stopped.append(number))
    clients = connect([int(number) for number in partitions.split(",")])
    bare(clients, lambda: not stopped)
    clients.consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
