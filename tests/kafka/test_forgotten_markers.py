"""Does a killed broker forget to end a transaction? Prints the figures. There is no worker in this test.

    E2E_LONG=1 pytest -n 0 -s tests/kafka/test_forgotten_markers.py

Kafka 4.3.0, 4.3.1 and 4.4.0 forget it if the broker is the only one: see docs/decisions/0060. Then no consumer that
reads only committed records gets past that transaction. If the first test fails, Kafka may have been fixed.
``KAFKA_VERSION`` chooses the version, after ``KAFKA_VERSION=… scripts/setup broker``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition, admin

from chaos import cluster as chaos_cluster
from chaos.groups import administrator
from chaos.node import VERSION, Layout
from tests.long_form import LONG

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.cluster import Cluster

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(not LONG, reason="long form: 25 broker kills for each layout"),
]

KILLS, PRODUCERS, PARTITIONS = 25, 4, 4
DECIDED_SECONDS = 35.0  # the time-out of a transaction and two searches of the broker for those that exceeded it
REQUEST_SECONDS = 20.0
_FORGOTTEN = "these partitions are likely deleted already and hence can be skipped"
_api: Any = admin  # its types are incomplete


class Open(NamedTuple):
    """A partition with a transaction that does not end."""

    topic: str
    partition: int


def test_a_killed_single_broker_leaves_transactions_open(tmp_path: Path) -> None:
    """The broker has logged that it skipped these partitions."""
    still_open = asyncio.run(killed(tmp_path, brokers=1))
    assert still_open, f"Kafka {VERSION} ended every transaction"
    assert _FORGOTTEN in (tmp_path / "broker-1/log").read_text()


def test_three_brokers_end_every_transaction(tmp_path: Path) -> None:
    """The test kills one broker at a time, so every partition soon has a leader again."""
    assert not asyncio.run(killed(tmp_path, brokers=3))


async def killed(folder: Path, *, brokers: int) -> list[Open]:
    """Kill brokers repeatedly during transactions. Return the partitions that are open half a minute after that."""
    async with chaos_cluster.running(folder, "forgotten-markers", Layout(brokers)) as cluster:
        topics = [f"kill-{number}" for number in range(KILLS)]
        for topic in topics:
            await kill_during_transactions(cluster, topic)
        await asyncio.sleep(DECIDED_SECONDS)
        records, still_open = ends(cluster, topics)
    affected = len({one.topic for one in still_open})
    click.echo(
        f"\nKafka {VERSION}, {brokers} broker(s): {KILLS} kills, {records} records, transactions left open by "
        f"{affected} kills in {len(still_open)} partitions"
    )
    return still_open


async def kill_during_transactions(cluster: Cluster, topic: str) -> None:
    """Kill a broker while producers write transactions to a new topic, and start it again."""
    await create(cluster, topic)
    stop = threading.Event()
    producers = [
        threading.Thread(target=produce, args=(cluster.bootstrap, topic, f"{topic}-{number}", stop), daemon=True)
        for number in range(PRODUCERS)
    ]
    for producer in producers:
        producer.start()
    await asyncio.sleep(random.uniform(1.5, 3.0))
    node = random.choice(cluster.nodes)
    node.signal(signal.SIGKILL)
    stop.set()
    for producer in producers:
        await asyncio.to_thread(producer.join)
    await cluster.wait_answers()


async def create(cluster: Cluster, topic: str) -> None:
    """Create a topic as soon as the brokers are able to, and wait until the killed broker follows its leaders again."""
    new = _api.NewTopic(topic, PARTITIONS, len(cluster.nodes))

    async def created() -> bool:
        with administrator(cluster.bootstrap) as client:
            try:
                client.create_topics([new], operation_timeout=10)[topic].result(REQUEST_SECONDS)
            except KafkaException as error:
                return "EXISTS" in str(error)
            return True

    def in_sync() -> bool:
        with contextlib.suppress(KafkaException), administrator(cluster.bootstrap) as client:
            known = client.list_topics(timeout=REQUEST_SECONDS).topics.values()
            partitions = [one for topic in known for one in topic.partitions.values()]
            return all(len(one.isrs) == len(cluster.nodes) for one in partitions)
        return False

    await chaos_cluster.until(created, f"topic {topic} cannot be created", 60)
    await chaos_cluster.until(in_sync, "not every replica of a partition is in sync", 60)


def produce(bootstrap: str, topic: str, transactional_id: str, stop: threading.Event) -> None:
    """Write transactions until the broker is killed."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "socket.timeout.ms": 10_000,
            "linger.ms": 1,
            "log_level": 0,
        }
    )
    with contextlib.suppress(KafkaException):
        producer.init_transactions(REQUEST_SECONDS)
        while not stop.is_set():
            producer.begin_transaction()
            for partition in random.sample(range(PARTITIONS), random.randint(1, PARTITIONS)):
                producer.produce(topic, b"answer", partition=partition)
            producer.commit_transaction(5)
    producer.purge()


def ends(cluster: Cluster, topics: list[str]) -> tuple[int, list[Open]]:
    """Return the number of records, and the partitions whose last stable offset is before their end."""
    partitions = [TopicPartition(*one) for one in itertools.product(topics, range(PARTITIONS))]
    with administrator(cluster.bootstrap) as client:

        def offsets(level: IsolationLevel) -> dict[Open, int]:
            wanted = dict.fromkeys(partitions, _api.OffsetSpec.latest())
            found = client.list_offsets(wanted, isolation_level=level, request_timeout=REQUEST_SECONDS)
            return {Open(at.topic, at.partition): one.result(REQUEST_SECONDS).offset for at, one in found.items()}

        every, stable = offsets(IsolationLevel.READ_UNCOMMITTED), offsets(IsolationLevel.READ_COMMITTED)
    return sum(every.values()), [at for at, end in every.items() if stable[at] < end]
