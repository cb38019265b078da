"""Whether the broker has the consumer protocol: found out by joining a throw-away group.

Nothing that can be read tells for sure: a broker whose feature ``group.version`` is 0 names the protocol in its
configuration, announces its requests, and refuses them.
"""

from __future__ import annotations

import concurrent.futures
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
from confluent_kafka import admin

from worker.core.deadline import Deadline
from worker.kafka.clients import UNTIMED
from worker.kafka.cluster import quiet
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def joins(properties: Mapping[str, Any], topics: Iterable[str], timeout: float) -> KafkaFailure | None:
    """Join a group ``<group.id>.doctor`` with these properties, leave and delete it. None if that went well.

    Nothing is committed, and what is fetched is thrown away.
    """
    group = f"{properties['group.id']}.doctor"
    failures: list[KafkaFailure] = []
    assigned: list[ck.TopicPartition] = []

    def complain(error: ck.KafkaError) -> None:
        failures.append(KafkaFailure(error.name(), error.str()))

    consumer = ck.Consumer(quiet({**properties, "group.id": group}, lambda _: None))
    try:
        consumer.subscribe(list(topics), on_assign=lambda _, partitions: assigned.extend(partitions))
        deadline = Deadline.after(timeout, time.monotonic())
        while not assigned and not failures and not deadline.passed(time.monotonic()):
            message = consumer.poll(0.05)
            if message is not None and (error := message.error()) is not None:
                complain(error)
    finally:
        consumer.close()
    _delete(properties, group, timeout)
    if assigned:
        return None
    return failures[0] if failures else KafkaFailure("_TIMED_OUT", f"not joined within {timeout:g} s")


def _delete(properties: Mapping[str, Any], group: str, timeout: float) -> None:
    """Remove the empty group. Without the permission it stays until the broker forgets it."""
    reachable = {name: value for name, value in properties.items() if not name.startswith(("group.", "max.poll."))}
    client = admin.AdminClient(quiet(reachable, lambda _: None))
    concurrent.futures.wait(client.delete_consumer_groups([group], request_timeout=UNTIMED).values(), timeout)
