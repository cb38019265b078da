"""The brokers of a run, the links from all replicas to all brokers, and the topics."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import os
import time
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicCollection, admin

from chaos.groups import administrator
from chaos.node import Layout, Node
from chaos.proxy import Link
from chaos.requests import LARGEST, PARTITIONS
from chaos.topics import Topics
from chaos.users import make_certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

LISTENERS = 3  # one per simultaneous replica; the added replica and the duplicates share the last
ANSWER_PARTITIONS = 4
STATE_PARTITIONS = 3
# At the end, the suite reads every record with the time when the broker stored it.
STATE_CONFIG = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": "86400000",
    "message.timestamp.type": "LogAppendTime",
}
START_SECONDS = 90.0
ISR_SECONDS = 120.0  # two runs share the CPUs
_api: Any = admin  # its types are incomplete


class Cluster:
    """Running brokers, each behind one link per listener."""

    def __init__(self, nodes: list[Node], links: list[list[Link]], run: str, certificate: Path | None = None) -> None:
        self.nodes = nodes
        self.certificate = certificate  # of secured brokers
        self.links = links  # by broker, then by listener
        self.run = run
        self.bootstrap = ",".join(f"127.0.0.1:{node.port}" for node in nodes)

    def address(self, listener: int) -> str:
        """Return the bootstrap servers of the replica with this listener."""
        return ",".join(f"127.0.0.1:{row[listener].port}" for row in self.links)

    def links_of(self, listener: int, broker: int) -> list[Link]:
        """Return the links of a replica to one broker, or to all if ``broker`` is negative."""
        rows = self.links if broker < 0 else [self.links[broker % len(self.links)]]
        return [row[listener] for row in rows]

    async def wait_answers(self, *nodes: Node, seconds: float = START_SECONDS) -> None:
        """Wait until these brokers answer, or all of them. Raise TimeoutError after ``seconds``."""
        for node in nodes or self.nodes:
            what = f"broker {node.number} does not answer, see {node.folder.name}"
            await until(functools.partial(self._answers, node), what, seconds)

    async def _answers(self, node: Node) -> bool:
        if not node.running:  # restart it, as an operator would
            node.launch(self.run)
        return await node.answers()

    async def make_topics(self) -> Topics:
        """Create new topics."""
        tag = uuid.uuid4().hex[:8]
        topics = Topics(f"requests-{tag}", f"answers-{tag}", f"dead_letters-{tag}", f"states-{tag}")
        parts = (PARTITIONS, ANSWER_PARTITIONS, ANSWER_PARTITIONS, STATE_PARTITIONS)
        new = [_api.NewTopic(name, n, len(self.nodes)) for name, n in zip(topics, parts, strict=True)]
        new[0].config = {"max.message.bytes": str(LARGEST)}
        new[3].config = STATE_CONFIG
        with administrator(self.bootstrap) as client:
            made = client.create_topics(new, operation_timeout=30)
            await asyncio.gather(*(asyncio.wrap_future(future) for future in made.values()))
        await self.wait_in_sync(topics)
        return topics

    async def delete_topics(self, topics: Topics) -> None:
        """Delete the topics of a run. Leave them if the brokers do not reply."""
        with contextlib.suppress(Exception), administrator(self.bootstrap) as client:
            deleted = client.delete_topics(list(topics), operation_timeout=30)
            await asyncio.gather(*(asyncio.wrap_future(future) for future in deleted.values()))

    async def wait_in_sync(self, topics: Topics, seconds: float = ISR_SECONDS) -> None:
        """Wait until every replica of every partition is in sync. Raise TimeoutError after ``seconds``."""

        async def in_sync() -> bool:
            with contextlib.suppress(Exception), administrator(self.bootstrap) as client:  # brokers may be down
                found = client.describe_topics(TopicCollection(list(topics)), request_timeout=5)
                described = await asyncio.gather(*(asyncio.wrap_future(future) for future in found.values()))
                partitions = [partition for topic in described for partition in topic.partitions]
                return bool(partitions) and all(len(p.isr) == len(self.nodes) for p in partitions)
            return False

        await until(in_sync, "not every replica of a partition is in sync", seconds)

    def heal(self) -> None:
        """Remove the faults of all links."""
        for row in self.links:
            for link in row:
                link.clear()


async def until(condition: Callable[[], Any], what: str, seconds: float) -> None:
    """Wait until the condition holds. Raise TimeoutError with ``what`` after that many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if await answer if asyncio.iscoroutine(answer) else answer:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s: {what}")
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def running(folder: Path, run: str, layout: Layout) -> AsyncIterator[Cluster]:
    """Start brokers, and kill them at the end. Their folder stays."""
    nodes: list[Node] = []
    async with contextlib.AsyncExitStack() as stack:
        links = [[await stack.enter_async_context(Link()) for _ in range(LISTENERS)] for _ in range(layout.brokers)]
        try:
            for number, row in enumerate(links, 1):
                nodes.append(Node(number, folder, row, layout))
            certificate = make_certificate(folder) if layout.secured else None
            identity = base64.urlsafe_b64encode(b"\1" + os.urandom(15)).decode()[:22]
            for node in nodes:
                node.write_settings(nodes)
            await asyncio.gather(*(node.prepare(identity) for node in nodes))
            for node in nodes:
                node.launch(run)
            cluster = Cluster(nodes, links, run, certificate)
            await cluster.wait_answers()
            yield cluster
        finally:
            for node in nodes:
                node.close()
