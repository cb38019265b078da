"""What the worker is measured against. One process each: ``python -m benchmarks.peers bare|simple PARTITIONS``.

Topics, group and broker come from the same variables as the worker's. Partitions are assigned, not subscribed to:
a peer loses no time in a group and starts at once, which is in its favour.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka as ck

from benchmarks import handlers
from benchmarks.answering import answer_to
from benchmarks.traffic import produce
from worker.codec import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

POLL = 0.1  # seconds; for the simple design that is kind, at the usual 1 or 2 s it is as much slower
BATCH = 5000  # about where the bare loop is at its fastest; ten times more changes nothing


class Clients(NamedTuple):
    """A peer's clients and the topic of its answers."""

    consumer: ck.Consumer
    producer: ck.Producer
    ack_topic: str


def connect(partitions: list[int]) -> Clients:
    """Clients with default settings, but for what the worker's guarantees ask of it too."""
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
    """Consume a batch, parse, produce, flush, commit once per batch. The answer has the contract's fields 1 and 2."""
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


def simple(clients: Clients, going: Callable[[], bool]) -> None:
    """One record at a time: pause, run in a second thread while polling goes on, produce and flush, commit, resume."""
    consumer, producer, ack_topic = clients
    handler = getattr(handlers, os.environ["BENCH_HANDLER"])
    with ThreadPoolExecutor(1) as service:
        while going():
            message = consumer.poll(POLL)
            if message is None:
                continue
            consumer.pause(consumer.assignment())
            task = service.submit(_run, handler, message)
            while not task.done():
                consumer.poll(POLL)
            producer.produce(ack_topic, task.result(), message.key())
            producer.flush()
            consumer.commit(message=message, asynchronous=False)
            consumer.resume(consumer.assignment())


def _run(handler: Callable[[Request, object], None], message: ck.Message) -> bytes:
    place: Any = (message.topic(), message.partition(), message.offset())  # a message that is no error has them all
    return answer_to(handler, _value(message), *place)


def _value(message: ck.Message) -> bytes:
    if message.error() is not None:
        raise SystemExit(f"consuming failed: {message.error()}")
    value: Any = message.value()  # bytes: no deserializer is set
    return bytes(value)


def main(peer: str, partitions: str) -> None:
    """Be that peer until a signal to stop."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: stopped.append(number))
    clients = connect([int(number) for number in partitions.split(",")])
    {"bare": bare, "simple": simple}[peer](clients, lambda: not stopped)
    clients.consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
