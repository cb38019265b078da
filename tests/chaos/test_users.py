"""Users of secured brokers. They have the permissions in the manual, and a deleted user is refused."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from chaos import cluster as clusters
from chaos.node import Layout
from chaos.options import Options
from chaos.topics import Topics
from chaos.users import Users, permissions

if TYPE_CHECKING:
    from pathlib import Path


SECONDS = 20.0
GROUP = "group"


def settings(users: Users, bootstrap: str) -> dict[str, Any]:
    """Return the settings of a client that connects as the newest user."""
    ours = {name.removeprefix("KAFKA_CONFIG_"): value for name, value in users.environment().items()}
    return {name.lower().replace("_", "."): value for name, value in ours.items()} | {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
    }


def wait_until_refused(client: dict[str, Any]) -> None:
    """Wait until brokers refuse the password. They learn of a deleted user a moment later."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        errors: list[KafkaError] = []
        producer = Producer(client | {"error_cb": errors.append})
        producer.poll(2)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            return
    pytest.fail("the password of the deleted user is still accepted")


def write(client: dict[str, Any], topic: str) -> None:
    """Write a record. Raise KafkaException if that is not allowed."""
    reports: list[KafkaError | None] = []
    producer = Producer(client)
    producer.produce(topic, b"value", on_delivery=lambda error, _: reports.append(error))
    producer.flush(SECONDS)
    (error,) = reports
    if error is not None:
        raise KafkaException(error)


def commit(client: dict[str, Any], topics: Topics, group: str) -> None:
    """Join the group, read a record, and commit its offset."""
    consumer = Consumer(client | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([topics.requests])
        record = consumer.poll(SECONDS)
        assert record is not None
        if (error := record.error()) is not None:
            raise KafkaException(error)
        consumer.commit(message=record, asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_user_has_the_listed_permissions_until_it_is_deleted(tmp_path: Path) -> None:
    async def check() -> None:
        async with clusters.running(tmp_path, "test", Layout(1, secured=True)) as cluster:
            topics = await cluster.make_topics()
            assert cluster.certificate is not None
            users = Users(cluster.bootstrap, cluster.certificate, permissions(topics, GROUP, Options(1)))
            await asyncio.to_thread(users.add)
            client = settings(users, cluster.address(0))
            write({"bootstrap.servers": cluster.bootstrap}, topics.requests)
            await asyncio.to_thread(commit, client, topics, GROUP)
            await asyncio.to_thread(write, client, topics.answers)
            with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                await asyncio.to_thread(write, client, topics.requests)
            with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
                await asyncio.to_thread(commit, client, topics, "another")
            plain = {"bootstrap.servers": cluster.address(0), "message.timeout.ms": 3_000, "log_level": 0}
            with pytest.raises(KafkaException, match="_MSG_TIMED_OUT"):  # without TLS
                await asyncio.to_thread(write, plain, topics.answers)

            await asyncio.to_thread(users.add)
            assert users.newest == "worker-2"
            await asyncio.to_thread(users.delete, {"worker-1"})  # a replica still connects as this user
            await asyncio.to_thread(write, client, topics.answers)
            await asyncio.to_thread(users.delete, ())
            await asyncio.to_thread(wait_until_refused, client)
            await asyncio.to_thread(write, settings(users, cluster.address(0)), topics.answers)

    asyncio.run(check())


def test_a_run_has_only_the_permissions_that_it_needs() -> None:
    topics = Topics("requests", "answers", "dead_letters", "states")

    def names(**given: Any) -> set[str]:
        return {f"{one.kind} {one.name}" for one in permissions(topics, GROUP, Options(1, **given))}

    assert names() == {"TOPIC requests", "TOPIC answers", "TOPIC dead_letters", "GROUP group"}
    assert names(guarantee="exactly-once") - names() == {"TRANSACTIONAL_ID group-"}
    assert names(features="detaching") - names() == {"TOPIC states", "BROKER kafka-cluster", "GROUP group.detached."}

    def may_write_requests(used: str) -> bool:
        rows = permissions(topics, GROUP, Options(1, features=used))
        return any(one.name == "requests" and "WRITE" in one.operations for one in rows)

    assert may_write_requests("follow-ups")
    assert not may_write_requests("")
