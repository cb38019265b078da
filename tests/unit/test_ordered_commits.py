"""Which processes need commits that no late copy can undo."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from tests.process_fake.world import CONFIG
from worker.core.model import Partition
from worker.kafka import consumer as consumer_module
from worker.kafka.consumer import ConfluentConsumer
from worker.kafka.ports import Position
from worker.process import main

if TYPE_CHECKING:
    from collections.abc import Iterator


class BuiltError(Exception):
    """Ends the construction of the process."""


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_commits_are_ordered_at_most_once(monkeypatch: pytest.MonkeyPatch, guarantee: str) -> None:
    """At-least-once may repeat a task after a fault, and exactly-once commits in transactions."""
    ordered = []

    def make(_properties: object, *, ordered_commits: bool) -> Any:
        ordered.append(ordered_commits)
        raise BuiltError

    monkeypatch.setattr(main, "ConfluentConsumer", make)
    monkeypatch.setattr(main, "executor_of", lambda *_: None)
    monkeypatch.setattr(main, "_consumer_properties", lambda *_: {})
    config: Any = dataclasses.replace(CONFIG, guarantee=guarantee)
    with pytest.raises(BuiltError):
        main._build(config, config, None)
    assert ordered == [guarantee == "at-most-once"]


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfluentConsumer]:
    """Yield a member that never finds a broker."""
    monkeypatch.setattr(consumer_module, "CLOSE_SECONDS", 0.1)
    # A client that waits for the reply to a commit never closes. It must not log its errors among other tests.
    monkeypatch.setattr(ConfluentConsumer, "_on_error", lambda *_: None)
    properties = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    consumer = ConfluentConsumer({"classic": properties}, ordered_commits=True)
    consumer.subscribe(["requests"], MagicMock(), MagicMock())
    yield consumer
    consumer.close()


def test_a_silent_coordinator_counts_if_the_commit_has_got_its_reply_in_the_same_poll(
    member: ConfluentConsumer,
) -> None:
    """The client passes the reply to the repeated commit on before the log line about its first copy."""
    member._committing = True
    member._on_commit(None, [])
    member._on_silent_coordinator()
    assert member.stale


def test_a_silent_coordinator_does_not_count_after_a_reply_in_an_earlier_poll(member: ConfluentConsumer) -> None:
    member._committing = True
    member._on_commit(None, [])
    member.poll(1, 0)
    member._on_silent_coordinator()
    assert not member.stale


def test_a_commit_beside_one_that_was_given_up_makes_the_member_stale(member: ConfluentConsumer) -> None:
    """The first one may still be sent, and undo the second."""
    member.commit({Partition("requests", 0): Position(5)})
    assert not member.stale
    member.commit({Partition("requests", 0): Position(7)})
    assert member.stale
