"""One or three brokers, the links of all replicas to all brokers, and the topics of a run."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import os
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import TopicCollection, admin

from chaos.groups import administrator
from chaos.load import LARGEST, PARTITIONS
from chaos.node import Node
from chaos.proxy import Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

LANES = 3  # as many replicas as there may be at a time; the further one and its like share the last
ANSWER_PARTITIONS = 4
START_SECONDS = 90.0
ISR_SECONDS = 60.0
_api: Any = admin  # not all it has is in the types


class Topics(NamedTuple):
    """Those of one run."""

    requests: str
    answers: str
    letters: str


class Cluster:
    """Brokers that run, each behind a link per lane."""

    def __init__(self, nodes: list[Node], links: list[list[Link]], run: str) -> None:
        self.nodes = nodes
        self.links = links  # by broker, and then by lane
        self.run = run
        self.bootstrap = ",".join(f"127.0.0.1:{node.port}" for node in nodes)

    def address(self, lane: int) -> str:
        """The broker list of the replica in this lane."""
        return ",".join(f"127.0.0.1:{row[lane].port}" for row in self.links)

    def lane(self, lane: int, broker: int) -> list[Link]:
        """The links of a replica to one broker, or to all."""
        rows = self.links if broker < 0 else [self.links[broker % len(self.links)]]
        return [row[lane] for row in rows]

    async def wait_answers(self, *nodes: Node, seconds: float = START_SECONDS) -> None:
        """Wait until these answer, or all."""
        for node in nodes or self.nodes:
            what = f"broker {node.number} does not answer, see {node.folder.name}"
            await until(functools.partial(self._answers, node), what, seconds)

    async def _answers(self, node: Node) -> bool:
        if not node.running:  # as whoever runs brokers would
            node.launch(self.run)
        return await node.answers()

    async def make_topics(self) -> Topics:
        """Fresh ones."""
        tag = uuid.uuid4().hex[:8]
        topics = Topics(f"requests-{tag}", f"answers-{tag}", f"letters-{tag}")
        parts = (PARTITIONS, ANSWER_PARTITIONS, ANSWER_PARTITIONS)
        new = [_api.NewTopic(name, n, len(self.nodes)) for name, n in zip(topics, parts, strict=True)]
        new[0].config = {"max.message.bytes": str(LARGEST)}
        with administrator(self.bootstrap) as client:
            made = client.create_topics(new, operation_timeout=30)
            await asyncio.gather(*(asyncio.wrap_future(future) for future in made.values()))
        await self.wait_in_sync(topics)
        return topics

    async def wait_in_sync(self, topics: Topics, seconds: float = ISR_SECONDS) -> None:
        """Wait until every replica of every partition is in sync."""

        async def in_sync() -> bool:
            with contextlib.suppress(Exception), administrator(self.bootstrap) as client:  # brokers may be away
                found = client.describe_topics(TopicCollection(list(topics)), request_timeout=5)
                described = await asyncio.gather(*(asyncio.wrap_future(future) for future in found.values()))
                partitions = [partition for topic in described for partition in topic.partitions]
                return bool(partitions) and all(len(p.isr) == len(self.nodes) for p in partitions)
            return False

        await until(in_sync, "not every replica of a partition is in sync", seconds)

    def heal(self) -> None:
        """Undo all that has been done to the links."""
        for row in self.links:
            for link in row:
                link.clear()


async def until(condition: Callable[[], Any], what: str, seconds: float) -> None:
    """Ask until the condition holds; raises TimeoutError with ``what`` if that takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if await answer if asyncio.iscoroutine(answer) else answer:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s: {what}")
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def running(folder: Path, count: int, run: str, *, small_disks: bool) -> AsyncIterator[Cluster]:
    """So many brokers that answer; gone at the end, their folder aside."""
    nodes: list[Node] = []
    async with contextlib.AsyncExitStack() as stack:
        links = [[await stack.enter_async_context(Link()) for _ in range(LANES)] for _ in range(count)]
        try:
            for number, row in enumerate(links, 1):
                nodes.append(Node(number, folder, row, small_disk=small_disks))
            identity = base64.urlsafe_b64encode(b"\1" + os.urandom(15)).decode()[:22]
            for node in nodes:
                node.write_settings(nodes)
            await asyncio.gather(*(node.prepare(identity) for node in nodes))
            for node in nodes:
                node.launch(run)
            cluster = Cluster(nodes, links, run)
            await cluster.wait_answers()
            yield cluster
        finally:
            for node in nodes:
                node.close()
