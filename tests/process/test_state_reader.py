"""The reader process of a replica, with the mock cluster of the client library instead of Kafka."""

from __future__ import annotations

import os
import signal
import time
import uuid
from typing import TYPE_CHECKING

import confluent_kafka as ck
import pytest

from worker.core.model import Partition
from worker.core.task_state import CHECKPOINT_LIMIT, Origin, TaskState
from worker.kafka import properties
from worker.kafka.producer import ConfluentProducer
from worker.kafka.properties import Link
from worker.state.client import KafkaStateTopic
from worker.state.config import ReaderConfig
from worker.state.port import Begin, CaughtUp, Pair
from worker.state.records import encode_state, state_key
from worker.supervisor.state_reader import StateReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.state.port import News

LONG = 30.0  # seconds; only a failing test waits this long
TOPIC = "states"
PLACE = Partition("requests", 0)
ORIGIN = Origin("requests", 0, 5)
STATE = TaskState(ORIGIN, "a-0", 1, 5, 6, checkpoint=bytes(CHECKPOINT_LIMIT), checkpoint_epoch=1)


class Rig:
    """A mock cluster, a reader that the supervisor keeps running, and clients as worker processes have them."""

    def __init__(self) -> None:
        self._cluster = ck.Producer({"bootstrap.servers": "none:1", "test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._cluster.list_topics(timeout=LONG).brokers.values()
        self._link = Link(",".join(f"{broker.host}:{broker.port}" for broker in brokers), "g", {}, {})
        self._partitions = len(self._cluster.list_topics(TOPIC, timeout=LONG).topics[TOPIC].partitions)
        self._address = f"test-{uuid.uuid4().hex}"
        common = properties.common(self._link, "reader") | {"group.id": "g"}
        config = ReaderConfig(self._address, TOPIC, self._partitions, common, "INFO", "json")
        self.reader = StateReader(config)
        self._clients: list[KafkaStateTopic] = []

    def client(self, name: str) -> KafkaStateTopic:
        made = properties.producer(self._link, name)
        client = KafkaStateTopic(name, self._address, TOPIC, self._partitions, ConfluentProducer(made))
        self._clients.append(client)
        return client

    def until(self, client: KafkaStateTopic, *last: News) -> list[News]:
        """Return everything that the client receives, up to ``last``."""
        found: list[News] = []
        end = time.monotonic() + LONG
        while found[-len(last) :] != list(last):
            assert time.monotonic() < end, [type(news).__name__ for news in found]
            self.reader.look(time.monotonic())
            found += client.receive()
            time.sleep(0.01)
        return found

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.reader.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def test_a_record_of_one_process_reaches_another_through_the_reader(rig: Rig) -> None:
    """Also after the reader was killed: the supervisor starts it again, and the clients connect again."""
    writer, follower = rig.client("a-0"), rig.client("b-0")
    follower.follow(PLACE, 1)
    assert rig.until(follower, CaughtUp(PLACE, 1)) == [Begin(PLACE), CaughtUp(PLACE, 1)]
    writer.write(ORIGIN, state_key(ORIGIN), encode_state(STATE), "token")
    state = Pair(state_key(ORIGIN), encode_state(STATE))
    assert rig.until(follower, state) == [state]
    assert writer.written() == (["token"], [])
    (pid,) = rig.reader.pids
    os.kill(pid, signal.SIGKILL)
    assert rig.until(follower, state, CaughtUp(PLACE, 1)) == [Begin(PLACE), state, CaughtUp(PLACE, 1)]
    assert rig.reader.pids != [pid]
    writer.write(ORIGIN, state_key(ORIGIN), None, "gone")
    gone = Pair(state_key(ORIGIN), None)
    assert rig.until(follower, gone) == [gone]
