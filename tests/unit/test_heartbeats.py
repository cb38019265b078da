"""A member sends a heartbeat every second, by subscribing again to the same topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka as ck
import pytest

from tests.contract.recorder import Recorder
from tests.unit.support import Watch
from worker.errors import ClientFatalError
from worker.kafka import consumer as module
from worker.kafka.consumer import ConfluentConsumer

_FATAL = ck.KafkaError._FATAL


class Client:
    """A client that records the times of its subscriptions. ``failed`` is the error that ended its thread."""

    def __init__(self, watch: Watch) -> None:
        self.subscribed_at: list[float] = []
        self.failed: ck.KafkaError | None = None
        self.on_error: Any = None
        self._watch = watch

    def subscribe(self, _topics: object, **_callbacks: object) -> None:
        self.subscribed_at.append(self._watch.time())
        if self.failed is not None:
            raise ck.KafkaException(ck.KafkaError(_FATAL))

    def poll(self, timeout: float) -> None:
        self._watch.sleep(timeout)
        if self.failed is not None:
            self.on_error(self.failed)

    def consume(self, *_: object) -> list[Any]:
        return []

    def memberid(self) -> str:
        return "m"


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=watch.time))
    return watch


def member(watch: Watch, protocol: str) -> tuple[ConfluentConsumer, Client]:
    consumer = ConfluentConsumer({protocol: {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}})
    client = Client(watch)
    client.on_error = consumer._on_error
    consumer._client = cast("Any", client)
    return consumer, client


@pytest.mark.parametrize("timeout", [0.0, 0.25])
@pytest.mark.parametrize(("protocol", "expected"), [("consumer", 11), ("classic", 1)])
def test_a_member_sends_a_heartbeat_every_second_under_the_consumer_protocol(
    watch: Watch, protocol: str, timeout: float, expected: int
) -> None:
    """It waits for records or runs a long task. A classic member would join again, so it subscribes only once."""
    consumer, client = member(watch, protocol)
    consumer.poll(1, timeout)
    assert client.subscribed_at == [], "it has no topics yet"
    consumer.subscribe(["t"], Recorder(), Recorder())
    for _ in range(41):
        consumer.poll(1, timeout)
        watch.sleep(0.25 - timeout)
    assert len(client.subscribed_at) == expected


def test_the_error_of_a_failed_client_names_the_cause(watch: Watch) -> None:
    """The subscription says only that the client has failed. The client's error callback gives the cause later."""
    consumer, client = member(watch, "consumer")
    consumer.subscribe(["t"], Recorder(), Recorder())
    watch.sleep(1.0)
    client.failed = ck.KafkaError(ck.KafkaError.GROUP_AUTHORIZATION_FAILED, "not allowed", fatal=True)
    with pytest.raises(ClientFatalError, match="not allowed"):
        consumer.poll(1, 0.25)
    assert len(client.subscribed_at) == 2
