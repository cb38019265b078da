"""A program that answers requests as a worker would, in a separate process:

``python -m tests.spark.support.responder BOOTSTRAP REQUESTS ACKS COUNT [--transactional]``

It reads the request topic from its beginning, and ends once the broker has confirmed COUNT answers.
"""

from __future__ import annotations

import sys
import time
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.support.messages import message

_BATCH = 2_000  # answers in a transaction
_SECONDS = 120.0
Request, Response = message("Request"), message("Response")


def main(bootstrap: str, requests: str, acks: str, count: int, *, transactional: bool) -> None:
    """Answer ``count`` requests."""
    name = f"responder-{uuid.uuid4().hex[:8]}"
    consumer = _consumer(bootstrap, requests, name)
    more = {"transactional.id": name} if transactional else {"enable.idempotence": True}
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 5, **more})
    if transactional:
        producer.init_transactions(_SECONDS)
    answered, end = 0, time.monotonic() + _SECONDS
    while answered < count and time.monotonic() < end:
        records = [record for record in consumer.consume(_BATCH, 0.5) if record.error() is None]
        if records and transactional:
            producer.begin_transaction()
        for record in records:
            _answer(producer, acks, record, name)
        assert producer.flush(_SECONDS) == 0
        if records and transactional:
            producer.commit_transaction(_SECONDS)
        answered += len(records)
    consumer.close()
    assert answered == count, f"{answered} requests came, {count} were expected"


def _consumer(bootstrap: str, requests: str, name: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "isolation.level": "read_committed"})
    partitions = consumer.list_topics(requests, 30).topics[requests].partitions
    consumer.assign([TopicPartition(requests, number, 0) for number in partitions])
    return consumer


def _answer(producer: Producer, acks: str, record: Any, name: str) -> None:
    request = Request.FromString(record.value())
    response = Response(
        sequence=request.sequence, isprocessed=True, outcome=1, result=request.payload.upper().encode(), attempt=1
    )
    response.worker, response.cpu_seconds = f"{name}-{request.sequence % 3}", 0.001
    origin = response.origin
    origin.topic, origin.partition, origin.offset = record.topic(), record.partition(), record.offset()
    response.run = dict(record.headers() or ()).get("x-run", b"").decode()
    response.requested_at.FromMilliseconds(record.timestamp()[1])
    began = time.time_ns()
    response.started_at.FromNanoseconds(began)
    response.finished_at.FromNanoseconds(began + 1_000_000 * (1 + request.sequence % 40))
    while True:
        try:
            producer.produce(acks, response.SerializeToString(), record.key())
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


if __name__ == "__main__":
    _, where, from_topic, to_topic, how_many, *options = sys.argv
    main(where, from_topic, to_topic, int(how_many), transactional="--transactional" in options)
