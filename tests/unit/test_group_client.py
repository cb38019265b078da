"""A consumer with an unanswered commit closes only when the coordinator is back. Nobody waits for that."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from worker.core.model import Partition
from worker.kafka import group_client
from worker.kafka.group_client import MOST_CLOSING, ConfluentGroupClient
from worker.kafka.ports import KafkaFailure, Position


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
