"""A member that the group has removed, and that has joined again under another name. Under the classic protocol."""

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
    """A client whose name a test can change. A real client's name changes only by an outage at the right moment."""

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
        """Receive nothing."""

    def incremental_assign(self, _positions: object) -> None:
        """Fetch nothing."""

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


def test_a_member_that_keeps_its_name_commits(stage: Stage) -> None:
    stage.consumer.commit({OURS: Position(1, "")})
    assert stage.client.commits == [True]
    assert not stage.consumer.stale


def test_a_member_under_another_name_commits_nothing(stage: Stage) -> None:
    """Another member may own the partition, but the broker would accept the commit."""
    stage.client.name = "second"
    stage.consumer.commit({OURS: Position(1, "")})
    assert [answer and answer.code for _, answer in stage.recorder.answers] == ["UNKNOWN_MEMBER_ID"]
    assert stage.client.commits == []


def test_transactions_use_the_name_that_the_partitions_were_assigned_to(stage: Stage) -> None:
    stage.client.name = "second"
    assert stage.consumer.membership() == "metadata of first"


def test_a_member_under_another_name_reports_its_partitions_lost_and_is_stale(stage: Stage) -> None:
    stage.client.name = "second"
    assert stage.consumer.poll(1, 0.01) == []
    assert stage.recorder.events == ["assigned", "lost"]
    assert stage.consumer.stale


def test_a_partition_that_is_revoked_under_another_name_is_reported_lost(stage: Stage) -> None:
    stage.client.name = "second"
    stage.consumer._on_revoke(stage.consumer._client, [ck.TopicPartition(*OURS)])
    assert stage.recorder.events == ["assigned", "lost"]


def test_a_member_whose_client_reports_the_loss_is_not_stale(stage: Stage) -> None:
    stage.client.name = "second"
    stage.consumer._on_lost(stage.consumer._client, [ck.TopicPartition(*OURS)])
    stage.consumer.poll(1, 0.01)
    assert stage.recorder.events == ["assigned", "lost"]
    assert not stage.consumer.stale


def test_a_member_under_another_name_is_not_stale_under_the_consumer_protocol() -> None:
    """A member keeps its name there, and joins again only after it has reported all partitions lost."""
    stage = Stage("consumer")
    stage.client.name = "second"
    assert stage.consumer.membership() == "metadata of second"
    assert not stage.consumer.stale


def test_a_partition_that_is_revoked_after_the_name_is_gone_is_reported_revoked(stage: Stage) -> None:
    """The client does this inside ``close``."""

    def close() -> None:
        stage.client.name = ""
        stage.consumer._on_revoke(stage.consumer._client, [ck.TopicPartition(*OURS)])

    stage.client.close = close  # type: ignore[method-assign]  # a method of a stand-in
    stage.consumer.close()
    assert stage.recorder.events == ["assigned", "revoked"]


def test_a_partition_under_another_name_is_reported_lost_once_at_the_close(stage: Stage) -> None:
    """Another member may own it, so it is not reported revoked. The client's report of the loss is not repeated."""

    def close() -> None:
        stage.consumer._on_lost(stage.consumer._client, [ck.TopicPartition(*OURS)])

    stage.client.name = "second"
    stage.client.close = close  # type: ignore[method-assign]  # a method of a stand-in
    stage.consumer.close()
    assert stage.recorder.events == ["assigned", "lost"]
