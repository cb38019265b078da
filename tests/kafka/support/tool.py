"""The command line's tools and their topics."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.kafka.support.commands import Commands
from worker.kafka.cluster import Cluster
from worker.kafka.reader import Reader
from worker.kafka.sender import Outgoing, Sender

if TYPE_CHECKING:
    from tests.kafka_broker import Broker
    from worker.core.model import Partition, Record


class Tool(Commands):
    """The command line, and the topics on which it works."""

    def __init__(self, broker: Broker) -> None:
        self.requests, self.answers, self.dead_letters = broker.topics(3)
        self.properties = {"bootstrap.servers": broker.bootstrap, "group.id": "test"}
        self.cluster = Cluster(self.properties)
        self.sender = Sender(self.properties)
        super().__init__(
            {
                "KAFKA_BOOTSTRAP_SERVER": broker.bootstrap,
                "KAFKA_REQUEST_TOPIC": self.requests,
                "KAFKA_ACK_TOPIC": self.answers,
                "KAFKA_DEAD_LETTER_TOPIC": self.dead_letters,
                "KAFKA_CONSUMER_GROUP_ID": f"group-{self.requests}",
                "WORKER_HTTP_PORT": "0",
            }
        )

    def ends(self, topic: str) -> dict[Partition, int]:
        return {place: span.end for place, span in self.cluster.spans(self.cluster.partitions(topic)).items()}

    def records(self, topic: str) -> list[Record]:
        starts = dict.fromkeys(self.cluster.partitions(topic), 0)
        with contextlib.closing(Reader(self.properties, starts)) as reader:
            return list(reader.to_end())


def dead_letter(tool: Tool, number: int, error: str = "ValueError") -> Outgoing:
    return Outgoing(
        tool.dead_letters,
        f"k{number}".encode(),
        f"value {number}".encode(),
        (
            ("trace", b"\xff\x00"),
            ("x-origin-topic", tool.requests.encode()),
            ("x-origin-partition", b"1"),
            ("x-origin-offset", str(number).encode()),
            ("x-attempts", b"3"),
            ("x-error-type", error.encode()),
            ("x-error-message", f"[bold]no {number}".encode()),
        ),
    )
