"""The state topic in memory, and a worker process's view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.core.task_state import TaskState
from worker.kafka.ports import Deliveries, KafkaFailure
from worker.state.port import Begin, CaughtUp, Pair
from worker.state.records import decode, encode_cancel, encode_state, partition_of
from worker.state.table import StateTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.core.model import Partition, Record
    from worker.core.task_state import Origin
    from worker.state.port import News
    from worker.testing.storage import Storage


class FakeStateTopic:
    """See ``worker.state.port.StateTopic``. While ``away``, nothing is read; ``delay``: seconds until it is."""

    def __init__(self, broker: Storage, topic: str, name: str) -> None:
        self.away = False
        self.delay = 0.01
        self.closed = False
        self._broker = broker
        self._topic = topic
        self._name = name  # of the process
        self._requested: list[tuple[Partition, int, float]] = []
        self._followed: set[Partition] = set()
        self._read: dict[Partition, int] = {}  # records of each partition of the topic that were passed on
        self._confirmed: list[object] = []
        self._failed: list[tuple[object, KafkaFailure]] = []

    def follow(self, place: Partition, number: int) -> None:
        self._requested.append((place, number, self._broker.clock() + self.delay))

    def unfollow(self, place: Partition) -> None:
        self._followed.discard(place)
        self._requested = [entry for entry in self._requested if entry[0] != place]

    def receive(self) -> Sequence[News]:
        if self.away or self._broker.away:
            return ()
        news = list(self._new())
        now = self._broker.clock()
        for place, number, _ in [entry for entry in self._requested if entry[2] <= now]:
            news += self._snapshot(place, number)
        self._requested = [entry for entry in self._requested if entry[2] > now]
        return news

    def _new(self) -> Iterator[News]:
        for partition, log in self._broker.topics[self._topic].logs.items():
            seen = self._read.get(partition, 0)
            self._read[partition] = len(log)
            for record in log[seen:]:
                if self._concerns(record):
                    yield Pair(record.key or b"", record.value)

    def _concerns(self, record: Record) -> bool:
        found = decode(record.key, record.value)
        by_itself = isinstance(found, TaskState) and found.worker == self._name
        return found is not None and found.origin.place in self._followed and not by_itself

    def _snapshot(self, place: Partition, number: int) -> Iterator[News]:
        table = StateTable()
        for record in self._broker.records(self._topic):
            table.apply(record.key, record.value)
        self._followed.add(place)
        yield Begin(place)
        for origin, state in table.states.items():
            if origin.place == place:
                yield Pair(str(origin).encode(), encode_state(state))
        for origin, request in table.cancels.items():
            if origin.place == place:
                yield Pair(f"cancel:{origin}".encode(), encode_cancel(request))
        yield CaughtUp(place, number)

    def write(self, origin: Origin, key: bytes, value: bytes | None, token: object) -> None:
        topic = self._broker.topics[self._topic]

        def deliver() -> None:
            if self.closed:
                return
            fault = topic.faults.popleft() if topic.faults else None
            if topic.too_large(key, value, ()):
                self._failed.append((token, KafkaFailure("MSG_SIZE_TOO_LARGE", f"more than {topic.max_bytes} bytes")))
                return
            if fault is None or fault.applied:
                number = partition_of(origin, len(topic.logs))
                topic.append(list(topic.logs)[number], key, value, (), self._broker.clock())
            if fault is None:
                self._confirmed.append(token)
            else:
                self._failed.append((token, fault.failure))

        self._broker.request(deliver, topic.delay)

    def written(self) -> Deliveries:
        deliveries = Deliveries(self._confirmed, self._failed)
        self._confirmed, self._failed = [], []
        return deliveries

    def close(self) -> None:
        self.closed = True
