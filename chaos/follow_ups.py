"""The request topic as a worker sees it: requests of handlers and the pipeline, and the end of each partition."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from chaos.clocks import unshifted
from chaos.messages import of_job, sequence_of
from chaos.reading import SILENT_SECONDS, Reading, reading_client
from chaos.requests import MOST_PARTITIONS, TABLE_JOB, Item

if TYPE_CHECKING:
    from chaos.evidence import RecordId

PARENT = "x-parent"  # header
QUIET_SECONDS = 2.0


class FollowUps(Reading):
    """A reader of committed requests in a thread. Use it as a context manager.

    ``items`` are the follow-up requests and those that the pipeline has submitted. ``parents`` maps each follow-up
    request to the request that sent it. ``ends`` maps each partition to the offset behind its last request. With
    transactions, the end of the log is behind a marker.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.parents: dict[RecordId, RecordId] = {}
        self.items: dict[RecordId, Item] = {}
        self.sent_at: dict[RecordId, float] = {}
        self.ends: dict[int, int] = {}
        super().__init__()
        self._bootstrap, self._topic = bootstrap, topic
        self._received_at = time.monotonic()

    @property
    def quiet(self) -> bool:
        """Return whether no request has arrived for a while."""
        return time.monotonic() - self._received_at > QUIET_SECONDS

    def _read(self) -> None:
        while not self._over.is_set():
            consumer = reading_client(self._bootstrap)
            consumer.assign(
                [
                    TopicPartition(self._topic, number, self.ends.get(number, OFFSET_BEGINNING))
                    for number in range(MOST_PARTITIONS)  # those that do not exist yet are read once they do
                ]
            )
            began = time.monotonic()
            while not self._over.is_set() and time.monotonic() - max(began, self._received_at) < SILENT_SECONDS:
                for record in consumer.consume(500, 0.2):
                    if record.error() is None:
                        self._received_at = time.monotonic()
                        self._take(record)
            consumer.close()

    def _take(self, record: Any) -> None:
        where = (record.partition(), record.offset())
        self.ends[where[0]] = where[1] + 1
        parent = dict(record.headers() or ()).get(PARENT)
        if parent is not None:
            partition, offset = parent.decode().rsplit("/", 2)[1:]
            self.parents[where] = int(partition), int(offset)
        elif not of_job(record.key(), TABLE_JOB):
            return
        self.sent_at[where] = unshifted(record.timestamp()[1] / 1000, time.time()) - time.time() + time.monotonic()
        kind = "echo" if parent is None else "sleep"
        self.items[where] = Item(sequence_of(record.value()), 0.0, kind, record.key(), record.value())
