"""A broker without the consumer protocol. The client reports this only after it was asked to join."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
import structlog

from tests.contract.kafkas import Reader, RealTime, partitions
from tests.contract.recorder import Recorder
from tests.kafka_broker import running_broker
from worker.errors import ClientFatalError
from worker.kafka import properties
from worker.kafka.consumer import ConfluentConsumer
from worker.kafka.ports import Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_broker import Broker

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def old_broker() -> Iterator[Broker]:
    """Yield a broker without the protocol: an old one, or one on which an operator has switched the protocol off."""
    with running_broker("group.coordinator.rebalance.protocols=classic") as running:
        yield running


def consumer_of(broker: Broker, *protocols: str) -> ConfluentConsumer:
    link = properties.Link(broker.bootstrap, f"g-{uuid.uuid4().hex[:12]}", {}, {"consumer": 60.0, "classic": 60.0})
    return ConfluentConsumer({protocol: properties.consumer(link, "contract", protocol) for protocol in protocols})


@pytest.mark.parametrize("timeout", [0.0, 0.1])
def test_the_consumer_falls_back_to_the_classic_protocol(old_broker: Broker, timeout: float) -> None:
    """It happens within the calls of the port. The caller only sees another protocol name and a line in the log."""
    topic, listener = old_broker.topic(2), Recorder()
    consumer = consumer_of(old_broker, "consumer", "classic")
    assert consumer.protocol == "consumer"
    listener.listen(consumer, topic)
    with structlog.testing.capture_logs() as lines:
        Reader(RealTime(), consumer, timeout=timeout).until(lambda: listener.owned == partitions(topic, 2))
    assert consumer.protocol == "classic"
    assert [line["event"] for line in lines if line["event"] == "protocol.fallback"] == ["protocol.fallback"]
    positions = dict.fromkeys(listener.owned, Position(0))
    assert Reader(RealTime(), consumer).commit(consumer, listener, positions) is None
    consumer.close()
    assert listener.events == ["assigned", "committed", "revoked"]


def test_a_missing_protocol_without_a_fallback_is_a_fatal_error(old_broker: Broker) -> None:
    """With ``KAFKA_GROUP_PROTOCOL=consumer`` the process reports why it cannot join."""
    consumer = consumer_of(old_broker, "consumer")
    Recorder().listen(consumer, old_broker.topic())
    with pytest.raises(ClientFatalError, match="not supported"):
        Reader(RealTime(), consumer).go_on(10.0)
    consumer.close()


def test_the_consumer_keeps_the_consumer_protocol_if_the_broker_has_it(broker: Broker) -> None:
    topic, listener = broker.topic(2), Recorder()
    consumer = consumer_of(broker, "consumer", "classic")
    listener.listen(consumer, topic)
    Reader(RealTime(), consumer).until(lambda: listener.owned == partitions(topic, 2))
    assert consumer.protocol == "consumer"
    consumer.close()
