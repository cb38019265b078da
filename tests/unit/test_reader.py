"""The tools' reader reaches an end even if others write all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import pytest

from worker.core.model import Partition
from worker.errors import BrokerError
from worker.kafka.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLACE = Partition("states", 0)


class Message:
    """A record, or an error such as the end of the partition."""

    def __init__(self, offset: int, error: int | None = None) -> None:
        self._offset = offset
        self._error = error

    def topic(self) -> str:
        return PLACE.topic

    def partition(self) -> int:
        return PLACE.number

    def offset(self) -> int:
        return self._offset

    def error(self) -> ck.KafkaError | None:
        return None if self._error is None else ck.KafkaError(self._error)

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


class Topic:
    """A client of a topic with one partition. ``growth``: the records that others write during each poll."""

    def __init__(self, end: int, *, growth: int = 0, stable_end: int | None = None) -> None:
        self.end = end
        self.growth = growth
        self.stable_end = stable_end  # where an open transaction begins
        self.silent = False  # the broker does not answer
        self.error: int | None = None
        self._next = 0

    def assign(self, places: Sequence[ck.TopicPartition]) -> None:
        self._next = places[0].offset

    def offsets_for_times(self, places: Sequence[ck.TopicPartition], _timeout: float) -> list[ck.TopicPartition]:
        if self.silent:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT))
        assert [place.offset for place in places] == [ck.OFFSET_END]
        return [ck.TopicPartition(*PLACE, self._readable)]

    @property
    def _readable(self) -> int:
        return self.end if self.stable_end is None else self.stable_end

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        if self.error is not None:
            return [Message(-1001, self.error)]
        if self.silent:
            return []
        self.end += self.growth
        first, self._next = self._next, max(self._next, self._readable)
        records = [Message(offset) for offset in range(first, self._next)]
        eof = Message(self._next, ck.KafkaError._PARTITION_EOF)
        return records if self.growth else [*records, eof]

    def close(self) -> None:
        pass


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(topic: Topic, start: int = 0, timeout: float = 30.0) -> Reader:
        def client(properties: Mapping[str, Any]) -> Topic:
            assert properties["isolation.level"] == "read_committed"  # so the ends are those of stable records
            return topic

        monkeypatch.setattr(ck, "Consumer", client)
        return Reader({}, {PLACE: start}, timeout)

    return make


def test_a_topic_that_never_stands_still_is_read_to_where_it_was(read: Any) -> None:
    records = read(Topic(5, growth=3)).to_end()
    assert [record.offset for record in records] == list(range(8))


def test_the_ends_are_fixed_until_they_are_marked_again(read: Any) -> None:
    reader = read(Topic(5, growth=3))
    assert not reader.at_end
    reader.poll(0.1)
    assert reader.at_end
    reader.mark_ends()
    assert reader.at_end
    reader._client.end += 1
    reader.mark_ends()
    assert not reader.at_end


def test_reading_ends_before_an_open_transaction(read: Any) -> None:
    assert [record.offset for record in read(Topic(5, stable_end=2)).to_end()] == [0, 1]


def test_an_empty_topic_counts_as_read_when_the_broker_confirms_its_end(read: Any) -> None:
    """So a missing permission to read is reported. The broker returns the ends without this permission."""
    topic = Topic(0)
    topic.error = ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(BrokerError, match=r"reading states\[0\] failed"):
        list(read(topic).to_end())
    assert list(read(Topic(0)).to_end()) == []


def test_ends_that_the_broker_did_not_return_are_requested_again(read: Any) -> None:
    topic = Topic(2)
    topic.silent = True
    reader = read(topic)
    assert not reader.poll(0.1)
    assert not reader.at_end
    topic.silent = False
    assert len(reader.poll(0.1)) == 2
    assert reader.at_end


def test_a_broker_that_does_not_reply_is_reported(read: Any) -> None:
    topic = Topic(2)
    topic.silent = True
    with pytest.raises(BrokerError, match=r"^reading stopped before the end: nothing came for 0 s"):
        list(read(topic, timeout=0.0).to_end())


def test_a_reader_without_partitions_ends_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that does not exist yet has no partitions."""
    topic = Topic(0)
    topic.silent = True
    monkeypatch.setattr(topic, "assign", lambda places: places)
    monkeypatch.setattr(ck, "Consumer", lambda _: topic)
    assert list(Reader({}, {}, 0.1).to_end()) == []
