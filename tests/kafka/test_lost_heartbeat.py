"""A rebalance whose only announcement to a member is lost (docs/decisions/0074)."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import admin

from chaos import cluster as clusters
from chaos import groups
from chaos.cluster import until
from chaos.node import Layout
from chaos.requests import PARTITIONS
from tests.contract.recorder import Recorder
from worker.kafka import membership_check, properties
from worker.kafka.clients import UNTIMED
from worker.kafka.consumer import ConfluentConsumer

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.cluster import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(150)]


class Member:
    """A member with its own path to the broker. It is polled all the time."""

    def __init__(self, cluster: Cluster, path: int, group: str, topic: str) -> None:
        link = properties.Link(cluster.address(path), group, {}, {"consumer": 60.0})
        self.recorder = Recorder()
        self.consumer = ConfluentConsumer({"consumer": properties.consumer(link, f"path-{path}", "consumer")})
        self.recorder.listen(self.consumer, topic)
        self.start()

    def start(self) -> None:
        """Poll, which also sends a heartbeat every second."""
        self._polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            await asyncio.to_thread(self.consumer.poll, 10, 0.05)

    async def owns(self, count: int) -> None:
        await until(lambda: len(self.recorder.owned) == count, f"it has {self.recorder.owned}", 30.0)

    async def misses_a_reply(self) -> None:
        """Wait until a heartbeat has had no reply in time."""
        await until(lambda: self.consumer._membership_check.pending, "its heartbeats have replies", 30.0)

    async def stop(self) -> None:
        self._polling.cancel()
        await asyncio.gather(self._polling, return_exceptions=True)
        await asyncio.sleep(0.2)  # until the last poll has returned in its thread

    async def close(self) -> None:
        await self.stop()
        await asyncio.to_thread(self.consumer.close)


def shared(bootstrap: str, group: str) -> bool:
    """Return whether the group has two members, each with a target assignment."""
    with admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}) as client:
        members = client.describe_consumer_groups([group], request_timeout=UNTIMED)[group].result(10).members
    targets = [one.target_assignment for one in members]
    return len(targets) == 2 and all(target is not None and target.topic_partitions for target in targets)


@pytest.mark.parametrize("taken_back", [False, True])
def test_a_member_that_missed_a_change_of_its_partitions_is_stale(tmp_path: Path, *, taken_back: bool) -> None:
    """This also holds if the change is undone before the first check, and only a later check finds a difference."""
    asyncio.run(_play(tmp_path, taken_back=taken_back))


def test_a_removed_member_whose_client_finds_no_coordinator_loses_its_partitions(tmp_path: Path) -> None:
    """Such a client sends no heartbeats and gets no replies. Without the check it keeps its partitions forever."""
    asyncio.run(_cut_off(tmp_path))


async def _cut_off(folder: Path) -> None:
    group, tag = f"g-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    async with clusters.running(folder / "kafka", tag, Layout(1)) as cluster:
        topics = await cluster.make_topics()
        await asyncio.to_thread(groups.configure, cluster.bootstrap, group, {"consumer.session.timeout.ms": "3000"})
        lonely = Member(cluster, 0, group, topics.requests)
        await lonely.owns(PARTITIONS)
        # As if only the client was cut off: the check takes the other path.
        lonely.consumer._membership_check._properties["bootstrap.servers"] = cluster.address(1)
        link = cluster.links[0][0]
        for way in (link.out, link.back):
            way.block()
        await until(lambda: lonely.recorder.events == ["assigned", "lost"], "it was not told", 60.0)
        assert lonely.consumer.stale
        await lonely.stop()  # before its client finds the coordinator again, and joins
        for way in (link.out, link.back):
            way.clear()
        await lonely.close()


async def _play(folder: Path, *, taken_back: bool) -> None:
    group, tag = f"g-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    async with clusters.running(folder / "kafka", tag, Layout(1)) as cluster:
        topics = await cluster.make_topics()
        # A member that is not polled sends heartbeats only at this interval.
        await asyncio.to_thread(groups.configure, cluster.bootstrap, group, {"consumer.heartbeat.interval.ms": "15000"})
        first = Member(cluster, 0, group, topics.requests)
        await first.owns(PARTITIONS)
        await first.stop()
        second = Member(cluster, 1, group, topics.requests)
        await until(lambda: asyncio.to_thread(shared, cluster.bootstrap, group), "the second has not joined", 30.0)
        way = cluster.links[0][0].back
        way.block()
        first.start()
        await first.misses_a_reply()  # the reply with the change
        way.clear()
        if taken_back:
            await second.close()
            await asyncio.sleep(2 * membership_check.CHECK_SECONDS)  # for a check that finds agreement
            assert not first.consumer.stale
            second = Member(cluster, 1, group, topics.requests)
        await until(lambda: first.consumer.stale, "nothing was noticed", 6 * membership_check.CHECK_SECONDS)
        assert first.recorder.events == ["assigned"], "it was told after all"
        assert not second.recorder.owned
        await first.close()
        await second.owns(PARTITIONS)
        assert not second.consumer.stale
        await second.close()
