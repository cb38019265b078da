"""A consumer with an unanswered commit closes only when the coordinator is back. Nobody waits for that."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from worker.core.model import Partition
from worker.kafka import group_client
from worker.kafka.admin import NO_ANSWER
from worker.kafka.group_client import MOST_CLOSING, ConfluentGroupClient
from worker.kafka.ports import KafkaFailure, MemberView, Position


class Unanswered:
    """A consumer whose coordinator is away."""

    made = 0
    back = threading.Event()

    def __init__(self, *_: object) -> None:
        Unanswered.made += 1

    def commit(self, **_: object) -> None:
        """Sent."""

    def poll(self, _timeout: float) -> None:
        """No reply comes."""

    def close(self) -> None:
        self.back.wait(30.0)


@pytest.mark.timeout(20)
def test_a_commit_without_a_reply_does_not_wait_for_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """And during a long outage there are never more than a few such consumers."""
    monkeypatch.setattr(group_client, "SECONDS", 0.0)
    monkeypatch.setattr(group_client, "ck", SimpleNamespace(**vars(ck) | {"Consumer": Unanswered}))
    client: Any = ConfluentGroupClient({})
    for _ in range(3 * MOST_CLOSING):
        assert isinstance(client.commit("g", Partition("t", 0), Position(1)), KafkaFailure)
    assert Unanswered.made == MOST_CLOSING
    Unanswered.back.set()
    for thread in client._closing:
        thread.join(5.0)
    client.commit("g", Partition("t", 0), Position(1))
    assert Unanswered.made == MOST_CLOSING + 1


class Silent:
    """An administrator that gets no reply."""

    closed = 0

    def __init__(self, _properties: object) -> None:
        """As ``Admin``."""

    def members(self, _group: str, _timeout: float) -> KafkaFailure:
        """As ``Admin``."""
        return NO_ANSWER

    def close(self) -> None:
        """As ``Admin``."""
        Silent.closed += 1


class Answering(Silent):
    """An administrator that gets replies."""

    def members(self, _group: str, _timeout: float) -> Any:
        """As ``Admin``."""
        return [SimpleNamespace(client_id="r0-0", partitions=frozenset())]


def test_a_view_of_the_group_that_failed_is_requested_over_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old client may not find the coordinator after an outage, and tasks of dead holders would wait for it."""
    monkeypatch.setattr(group_client, "Admin", Silent)
    client = ConfluentGroupClient({})
    assert client.members("g") == NO_ANSWER
    assert Silent.closed == 1
    monkeypatch.setattr(group_client, "Admin", Answering)
    assert [client.members("g"), client.members("g")] == [[MemberView("r0-0", frozenset())]] * 2
    assert Silent.closed == 1


class Lost:
    """A consumer that does not find its coordinator."""

    made = 0

    def __init__(self, *_: object) -> None:
        Lost.made += 1

    def committed(self, *_: object) -> None:
        """No reply comes."""
        raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT))

    def close(self) -> None:
        """At once."""


def test_an_offset_that_could_not_be_read_is_read_by_a_new_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_client, "ck", SimpleNamespace(**vars(ck) | {"Consumer": Lost}))
    client: Any = ConfluentGroupClient({})
    for made in (1, 2):
        assert isinstance(client.committed("g", Partition("t", 0), stable=True), KafkaFailure)
        assert Lost.made == made
