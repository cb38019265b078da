"""Common functions for the tests of ``worker.Client``, in which the test answers instead of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.kafka.support.messages import message
from worker.client.ids import TaskId

if TYPE_CHECKING:
    from tests.kafka.support.site import Site
WAIT_LIMIT = 40.0


def answer(site: Site, task_id: str, result: bytes = b"done", partition: int = 0, transaction: str = "") -> Producer:
    """Answer a request instead of the worker. A transactional id leaves the answer in an open transaction."""
    origin = TaskId.parse(task_id).origin
    response = message("Response")(isprocessed=True, outcome=1, result=result)
    response.origin.topic, response.origin.partition, response.origin.offset = origin
    settings = {"transactional.id": transaction} if transaction else {}
    producer = Producer({"bootstrap.servers": site.bootstrap, **settings})
    if transaction:
        producer.init_transactions(WAIT_LIMIT)
        producer.begin_transaction()
    producer.produce(site.ack, response.SerializeToString(), partition=partition)
    assert producer.flush(WAIT_LIMIT) == 0
    return producer
