"""A member of a group whose connection to its only broker can be blocked."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import TYPE_CHECKING

import confluent_kafka as ck

from chaos import cluster as clusters
from chaos.node import Layout
from chaos.proxy import Way
from tests.contract.recorder import Recorder
from worker.core.model import Partition
from worker.kafka import properties
from worker.kafka.consumer import ConfluentConsumer
from worker.kafka.ports import Position

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from chaos.cluster import Cluster
    from worker.kafka.ports import KafkaFailure

LIMIT = 40.0  # seconds; the client gives up a request of the classic protocol later than one of the consumer protocol


class ProxiedMember:
    """A member that commits for one partition."""

    def __init__(self, cluster: Cluster, protocol: str, topic: str, *, ordered_commits: bool = False) -> None:
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

    def block(self) -> None:
        """Deliver nothing more, in either direction, over open and new connections."""
        self._link.out.block()
        self._link.back.block()

    def unblock(self) -> None:
        """Deliver everything again."""
        self._link.clear()

    def hold_back(self) -> Way:
        """Deliver no more requests over the open connections until the returned way is cleared. New ones work."""
        held, self._link.out = self._link.out, Way()
        held.block()
        return held

    def committed(self) -> int:
        client = ck.Consumer({"bootstrap.servers": self._bootstrap, "group.id": self._group})
        (found,) = client.committed([ck.TopicPartition(*self.partition)], 10)
        client.close()
        return found.offset


@contextlib.asynccontextmanager
async def proxied_member(folder: Path, protocol: str, *, ordered_commits: bool = False) -> AsyncIterator[ProxiedMember]:
    """Run a broker, and yield a member that owns a partition and has committed an offset."""
    async with clusters.running(folder / "kafka", uuid.uuid4().hex, Layout(1)) as cluster:
        topics = await cluster.make_topics()
        member = ProxiedMember(cluster, protocol, topics.requests, ordered_commits=ordered_commits)
        await member.poll_until(lambda: member.partition in member.recorder.owned, "it has no partition")
        assert await member.commit(5) is None
        yield member
