"""A member that the group has given up, and knows under another name by now, under the classic protocol."""

from __future__ import annotations

from typing import Any, cast

import confluent_kafka as ck
import pytest

from tests.contract.recorder import Recorder
from worker.core.model import Partition
from worker.kafka.consumer import ConfluentConsumer
from worker.kafka.ports import Position

OURS = Partition("t", 5)


class Client:
    """What the consumer asks its client for. A real one comes to this only by an outage at the right moment."""

    def __init__(self) -> None:
        self.name = "first"
        self.commits: list[Any] = []

    def memberid(self) -> str:
        return self.name

    def consumer_group_metadata(self) -> str:
        return f"metadata of {self.name}"

    def committed(self, positions: list[ck.TopicPartition], _timeout: float) -> list[ck.TopicPartition]:
        return positions

    def commit(self, offsets: list[ck.TopicPartition], *, asynchronous: bool) -> list[ck.TopicPartition]:
        self.commits.append(asynchronous)
        return offsets

    def poll(self, _timeout: float) -> None:
        """Nothing comes."""

    def incremental_assign(self, _positions: object) -> None:
        """Nothing is fetched."""

    resume = subscribe = close = lambda *_args, **_kwargs: None


class Stage:
    def __init__(self, protocol: str = "classic") -> None:
        self.client, self.recorder = Client(), Recorder()
        self.consumer = ConfluentConsumer({protocol: {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}})
        self.consumer._client = cast("Any", self.client)
        self.recorder.consumer = self.consumer
        self.consumer.subscribe(["t"], self.recorder, self.recorder)
        self.consumer._on_assign(self.consumer._client, [ck.TopicPartition(*OURS)])
        self.consumer.membership()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_who_keeps_its_name_commits(stage: Stage) -> None:
    stage.consumer.commit({OURS: Position(1, "")})
    assert stage.client.commits == [True]
    assert not stage.consumer.stale


def test_under_another_name_nothing_is_committed(stage: Stage) -> None:
    """The partition may be another's: the broker would take it all the same."""
    stage.client.name = "second"
    stage.consumer.commit({OURS: Position(1, "")})
    assert [answer and answer.code for _, answer in stage.recorder.answers] == ["UNKNOWN_MEMBER_ID"]
    assert stage.client.commits == []


def test_transactions_are_sent_under_the_name_that_was_given_the_partitions(stage: Stage) -> None:
    stage.client.name = "second"
    assert stage.consumer.membership() == "metadata of first"


def test_what_the_client_keeps_is_reported_lost_and_the_member_joins_again(stage: Stage) -> None:
    stage.client.name = "second"
    assert stage.consumer.poll(1, 0.01) == []
    assert stage.recorder.events == ["assigned", "lost"]
    assert stage.consumer.stale


def test_what_is_revoked_under_another_name_was_lost_before(stage: Stage) -> None:
    stage.client.name = "second"
    stage.consumer._on_revoke(stage.consumer._client, [ck.TopicPartition(*OURS)])
    assert stage.recorder.events == ["assigned", "lost"]


def test_what_the_client_reports_itself_needs_no_new_member(stage: Stage) -> None:
    stage.client.name = "second"
    stage.consumer._on_lost(stage.consumer._client, [ck.TopicPartition(*OURS)])
    stage.consumer.poll(1, 0.01)
    assert stage.recorder.events == ["assigned", "lost"]
    assert not stage.consumer.stale


def test_the_consumer_protocol_tells_by_itself() -> None:
    """A member keeps its name, and joins again only after it has told that all is lost."""
    stage = Stage("consumer")
    stage.client.name = "second"
    assert stage.consumer.membership() == "metadata of second"
    assert not stage.consumer.stale


def test_the_name_may_be_gone_before_the_last_partition_is_revoked(stage: Stage) -> None:
    """As it happens inside ``close``."""

    def close() -> None:
        stage.client.name = ""
        stage.consumer._on_revoke(stage.consumer._client, [ck.TopicPartition(*OURS)])

    stage.client.close = close  # type: ignore[method-assign]  # a method of a stand-in
    stage.consumer.close()
    assert stage.recorder.events == ["assigned", "revoked"]


def test_what_others_own_is_not_revoked_at_the_end(stage: Stage) -> None:
    """Nor is it reported lost a second time, when the client notices."""

    def close() -> None:
        stage.consumer._on_lost(stage.consumer._client, [ck.TopicPartition(*OURS)])

    stage.client.name = "second"
    stage.client.close = close  # type: ignore[method-assign]  # a method of a stand-in
    stage.consumer.close()
    assert stage.recorder.events == ["assigned", "lost"]
