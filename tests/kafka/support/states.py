"""The state topic of a site: created, read, and written to as ``worker cancel`` does."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer, admin
from confluent_kafka.admin import AdminClient

from tests.kafka.support.topics import Reader
from worker.core.task_state import CancelRequest, Origin, TaskState
from worker.state.records import cancel_key, decode, encode_cancel, encode_state, partition_of, state_key
from worker.state.table import StateTable

if TYPE_CHECKING:
    from tests.kafka.support.topics import Sent

PARTITIONS = 3
SECONDS = 30.0
_admin: Any = admin  # its types are incomplete


class States:
    """A compacted topic."""

    def __init__(self, bootstrap: str) -> None:
        self.topic = f"states-{uuid.uuid4().hex[:8]}"
        wanted = _admin.NewTopic(self.topic, PARTITIONS, 1, config={"cleanup.policy": "compact"})
        client: Any = AdminClient({"bootstrap.servers": bootstrap})
        client.create_topics([wanted])[self.topic].result(SECONDS)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._reader = Reader(bootstrap, self.topic, PARTITIONS)
        self._table = StateTable()
        self._seen = 0

    @property
    def table(self) -> StateTable:
        """Return the current content of the topic."""
        self._reader.read()
        for record in self._reader.records[self._seen :]:
            self._table.apply(record.key, record.value)
        self._seen = len(self._reader.records)
        return self._table

    def written(self) -> list[TaskState]:
        """Return every state of a task so far, including refused ones."""
        found = (decode(record.key, record.value) for record in self._reader.read())
        return [state for state in found if isinstance(state, TaskState)]

    def cancel(self, sent: Sent) -> None:
        """Send a cancel request for a request."""
        origin = Origin(sent.topic, sent.partition, sent.offset)
        self._write(origin, cancel_key(origin), encode_cancel(CancelRequest(origin, time.time_ns())))

    def write(self, state: TaskState) -> None:
        """Write the state of a task as its holder does."""
        self._write(state.origin, state_key(state.origin), encode_state(state))

    def _write(self, origin: Origin, key: bytes, value: bytes) -> None:
        self._producer.produce(self.topic, value, key, partition_of(origin, PARTITIONS))
        assert self._producer.flush(SECONDS) == 0
