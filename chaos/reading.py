"""The common parts of the suite's readers: clients for committed records, and a thread that reads in a context."""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

READ_SECONDS = 60.0
SILENT_SECONDS = 10.0  # seconds without a record until a reader creates a new client


def reading_client(bootstrap: str) -> Consumer:
    """Return a client for committed records that reads assigned partitions from the beginning."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": f"reader-{uuid.uuid4().hex}"}
    settings |= {"log_level": 0, "topic.metadata.refresh.interval.ms": 5_000, "fetch.wait.max.ms": 100}
    settings |= {"isolation.level": "read_committed", "enable.auto.commit": False}
    return Consumer({**settings, "auto.offset.reset": "earliest", "message.max.bytes": 20_000_000})


def whole_topic(bootstrap: str, topic: str, partitions: Iterable[int]) -> Iterator[Any]:
    """Yield every record of these partitions, up to their ends. Raise TimeoutError if reading takes too long."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": f"reader-{topic}", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    left = set(partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
    deadline = time.monotonic() + READ_SECONDS
    try:
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} could not be read within {READ_SECONDS:g} s")
            record: Any  # the types allow an error without a name
            for record in consumer.consume(1000, 0.5):
                if record.error() is None:
                    yield record
                elif record.error().name() == "_PARTITION_EOF":
                    left.discard(record.partition())
    finally:
        consumer.close()


class Reading(ABC):
    """A reading thread, to use as a context manager. Leaving it sets ``_over``, which ``_read`` must check."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @abstractmethod
    def _read(self) -> None:
        """Read until the context ends."""
