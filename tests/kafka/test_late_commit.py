"""A copy of a commit that reaches the coordinator after a later one, over a connection that the client has closed."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import confluent_kafka as ck
import pytest

from chaos import cluster as clusters
from chaos.node import Layout
from chaos.proxy import Way
from tests.contract.recorder import Recorder
from worker.core.model import Partition
from worker.kafka import properties
from worker.kafka.consumer import ConfluentConsumer
from worker.kafka.ports import Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chaos.cluster import Cluster
    from worker.kafka.ports import KafkaFailure

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(150)]

LIMIT = 40.0  # seconds; the client gives up a request of the classic protocol later than one of the consumer protocol


class Member:
    """A member that commits for one partition. Its requests can be held back and delivered later."""

    def __init__(self, cluster: Cluster, protocol: str, topic: str, *, ordered_commits: bool) -> None:
        self.partition = Partition(topic, 0)
        self._group, self._bootstrap, self._link = f"g-{uuid.uuid4().hex[:8]}", cluster.bootstrap, cluster.links[0][0]
        link = properties.Link(cluster.address(0), self._group, {"session.timeout.ms": "45000"}, {protocol: 600.0})
        made = properties.consumer(link, "late", protocol)
        self.recorder = Recorder()
        self.consumer = ConfluentConsumer({protocol: made}, ordered_commits=ordered_commits)
        self.recorder.listen(self.consumer, topic)

    async def poll_until(self, holds: Callable[[], object], what: str) -> None:
        end = asyncio.get_running_loop().time() + LIMIT
        while not holds():
            assert asyncio.get_running_loop().time() < end, what
            await asyncio.to_thread(self.consumer.poll, 10, 0.05)

    async def commit(self, offset: int) -> KafkaFailure | None:
        """Commit, and return why that failed."""
        answers = self.recorder.answers
        answers.clear()
        await asyncio.to_thread(self.consumer.commit, {self.partition: Position(offset)})
        await self.poll_until(lambda: answers, "the commit has no reply")
        return answers[0][1]

    def hold_back(self) -> Way:
        """Deliver nothing more over the open connections until the returned way is cleared. New ones work."""
        held, self._link.out = self._link.out, Way()
        held.block()
        return held

    def committed(self) -> int:
        client = ck.Consumer({"bootstrap.servers": self._bootstrap, "group.id": self._group})
        (found,) = client.committed([ck.TopicPartition(*self.partition)], 10)
        client.close()
        return found.offset


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("ordered_commits", [False, True])
def test_a_late_copy_of_a_commit(tmp_path: Path, protocol: str, *, ordered_commits: bool) -> None:
    """It undoes a later commit. With ordered commits its own commit fails, and the member has to join again."""
    asyncio.run(_play(tmp_path, protocol, ordered_commits=ordered_commits))


async def _play(folder: Path, protocol: str, *, ordered_commits: bool) -> None:
    async with clusters.running(folder / "kafka", uuid.uuid4().hex, Layout(1)) as cluster:
        topics = await cluster.make_topics()
        member = Member(cluster, protocol, topics.requests, ordered_commits=ordered_commits)
        await member.poll_until(lambda: member.partition in member.recorder.owned, "it has no partition")
        assert await member.commit(5) is None
        assert not member.consumer.stale
        held = member.hold_back()
        failure = await member.commit(7)
        assert member.consumer.stale is ordered_commits
        assert (failure is not None) is ordered_commits, failure
        assert await member.commit(9) is None
        assert member.committed() == 9
        held.clear()
        await clusters.until(lambda: asyncio.to_thread(lambda: member.committed() == 7), "no copy has arrived", 20.0)
        await asyncio.to_thread(member.consumer.close)
