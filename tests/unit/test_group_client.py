"""A consumer with an unanswered commit closes only when the coordinator is back. The client does not wait for it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from worker.core.detached import MOST_MARKS, in_turn
from worker.core.model import Partition
from worker.kafka import group_client
from worker.kafka.admin import NO_ANSWER
from worker.kafka.group_client import MOST_CLOSING, MOST_CONSUMERS, ConfluentGroupClient
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
    """During a long outage at most ``MOST_CLOSING`` consumers without a reply exist."""
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
        """See ``Admin``."""

    def members(self, _group: str, _timeout: float) -> KafkaFailure:
        """See ``Admin``."""
        return NO_ANSWER

    def close(self) -> None:
        """See ``Admin``."""
        Silent.closed += 1


class Answering(Silent):
    """An administrator that gets replies."""

    def members(self, _group: str, _timeout: float) -> Any:
        """See ``Admin``."""
        return [SimpleNamespace(client_id="r0-0", partitions=frozenset())]


def test_the_client_reconnects_after_a_failed_request_for_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old client may not find the coordinator after an outage. Then the tasks of dead holders would wait."""
    monkeypatch.setattr(group_client, "Admin", Silent)
    client = ConfluentGroupClient({})
    assert client.members("g") == NO_ANSWER
    assert Silent.closed == 1
    monkeypatch.setattr(group_client, "Admin", Answering)
    assert [client.members("g"), client.members("g")] == [[MemberView("r0-0", frozenset())]] * 2
    assert Silent.closed == 1


class Empty:
    """A consumer of a group that has committed nothing. It closes when ``back`` is set."""

    made = 0
    back = threading.Event()

    def __init__(self, *_: object) -> None:
        Empty.made += 1

    def committed(self, places: list[ck.TopicPartition], _timeout: float) -> list[ck.TopicPartition]:
        """Return the partitions without an offset, as the client does."""
        places[0].offset = ck.OFFSET_INVALID
        return places

    def close(self) -> None:
        self.back.wait(30.0)


@pytest.fixture
def _empty_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_client, "ck", SimpleNamespace(**vars(ck) | {"Consumer": Empty}))
    Empty.made = 0
    Empty.back.clear()


@pytest.mark.parametrize(("tasks", "most"), [(MOST_MARKS, MOST_MARKS), (MOST_MARKS + 1, 30), (100, 60)])
@pytest.mark.usefixtures("_empty_groups")
def test_marks_of_many_tasks_need_few_new_consumers(tasks: int, most: int) -> None:
    """Ten rounds read the mark of each task. Each round could need one new consumer per task."""
    Empty.back.set()
    client: Any = ConfluentGroupClient({})
    for number in range(10):
        for task in in_turn(range(tasks), number):
            client.committed(f"mark-{task}", Partition("t", 0), stable=True)
        for thread in client._closing:
            thread.join(5.0)
    assert Empty.made <= most


@pytest.mark.timeout(20)
@pytest.mark.usefixtures("_empty_groups")
def test_offsets_of_more_groups_are_not_read_while_many_consumers_are_closing() -> None:
    client: Any = ConfluentGroupClient({})
    found = [client.committed(f"mark-{n}", Partition("t", 0), stable=True) for n in range(100)]
    assert Empty.made == MOST_CONSUMERS + MOST_CLOSING
    assert [isinstance(one, KafkaFailure) for one in found] == [n >= Empty.made for n in range(100)]
    assert client.committed(f"mark-{Empty.made - 1}", Partition("t", 0), stable=True) is None
    Empty.back.set()
    for thread in client._closing:
        thread.join(5.0)
    assert client.committed("mark-99", Partition("t", 0), stable=True) is None


class Lost:
    """A consumer that does not find its coordinator."""

    made = 0

    def __init__(self, *_: object) -> None:
        Lost.made += 1

    def committed(self, *_: object) -> None:
        """No reply comes."""
        raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT))

    def close(self) -> None:
        """Close without waiting."""


def test_a_new_consumer_reads_an_offset_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_client, "ck", SimpleNamespace(**vars(ck) | {"Consumer": Lost}))
    client: Any = ConfluentGroupClient({})
    for made in (1, 2):
        assert isinstance(client.committed("g", Partition("t", 0), stable=True), KafkaFailure)
        assert Lost.made == made
