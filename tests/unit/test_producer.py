"""The producer while the client's queue is full."""

from __future__ import annotations

from worker.kafka.producer import ConfluentProducer

NOBODY = "127.0.0.1:1"  # no broker ever listens there


def test_a_record_that_does_not_fit_into_the_clients_queue_fails_immediately() -> None:
    """The poll thread must not wait for space: the process would look dead. It produces the record again later."""
    producer = ConfluentProducer(
        {"bootstrap.servers": NOBODY, "queue.buffering.max.messages": 2, "enable.idempotence": True, "log_level": 0}
    )
    for token in range(5):
        producer.produce("answers", b"key", b"value", (), token)
    deliveries = producer.deliveries(0.0)
    assert [(token, failure.code, failure.retriable) for token, failure in deliveries.failed] == [
        (token, "_QUEUE_FULL", True) for token in (2, 3, 4)
    ]
    assert deliveries.confirmed == []
    producer.close()
