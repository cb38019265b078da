"""The behaviour of the consumer that the worker relies on when it fetches and commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.kafkas import WAIT_LIMIT, Kafka, Reader, contents, partitions
from tests.contract.recorder import Recorder
from worker.core.model import Partition, PartitionEnd, Record
from worker.kafka.ports import Position

if TYPE_CHECKING:
    from worker.kafka.ports import Consumer


def member(kafka: Kafka, topic: str) -> tuple[Consumer, Recorder, Reader]:
    """Return a consumer that has its partitions. Records that came at the same time are in the reader."""
    consumer, listener = kafka.consumer(), Recorder()
    listener.listen(consumer, topic)
    reader = Reader(kafka, consumer)
    reader.until(lambda: listener.owned, limit=1)
    return consumer, listener, reader


# ---------------------------------------------------------------- poll


def test_a_poll_returns_at_most_its_limit_and_the_next_poll_continues(kafka: Kafka) -> None:
    """The number of waiting records does not matter, and no record is skipped."""
    topic = kafka.topic()
    consumer, _, reader = member(kafka, topic)
    for number in range(25):
        kafka.append(topic, str(number).encode())
    sizes, end = [0], kafka.now() + WAIT_LIMIT
    while len(reader.records) < 25:
        assert kafka.now() < end
        reader.take(polled := consumer.poll(4, 0.1))
        sizes.append(sum(isinstance(one, Record) for one in polled))
    assert max(sizes) <= 4
    assert [record.value for record in reader.records] == [str(number).encode() for number in range(25)]


def test_a_poll_with_fewer_records_than_its_limit_returns_early(kafka: Kafka) -> None:
    """The poll does not wait for the rest of its limit."""
    topic = kafka.topic()
    consumer, _, reader = member(kafka, topic)
    reader.until(lambda: reader.ends)
    kafka.append(topic, b"x")
    started = kafka.now()
    reader.take(consumer.poll(1_000, 8.0))
    assert len(reader.records) == 1
    assert kafka.now() - started < 4


@pytest.mark.parametrize("timeout", [0.0, 0.2])
def test_a_poll_without_records_ends_after_its_timeout(kafka: Kafka, timeout: float) -> None:
    consumer, _, reader = member(kafka, kafka.topic())
    reader.until(lambda: reader.ends)
    reader.go_on(0.3)  # the replies to the join have arrived
    started = kafka.now()
    assert consumer.poll(10, timeout) == []
    assert timeout * 0.5 <= kafka.now() - started < timeout + 0.5


def test_a_poll_with_a_timeout_of_zero_joins_and_fetches(kafka: Kafka) -> None:
    """Callbacks run and records come although a busy process never waits in its polls."""
    topic, listener, consumer = kafka.topic(), Recorder(), kafka.consumer()
    kafka.append(topic, b"x")
    listener.listen(consumer, topic)
    end = kafka.now() + WAIT_LIMIT
    while not any(isinstance(one, Record) for one in consumer.poll(10, 0.0)):
        assert kafka.now() < end
        kafka.idle(0.01)
    assert listener.events == ["assigned"]


def test_records_of_a_partition_come_in_order(kafka: Kafka) -> None:
    topic = kafka.topic(3)
    for number in range(60):
        kafka.append(topic, b"x", number=number % 3)
    _, _, reader = member(kafka, topic)
    records = reader.read(60, limit=7)
    for partition in partitions(topic, 3):
        assert [record.offset for record in records if record.partition == partition] == list(range(20))


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, None), (b"", b""), (None, b"x"), (b"k", None), (b"\x00\xff", b"\xff\x00" * 500)],
)
def test_keys_and_values_arrive_as_they_were_sent(kafka: Kafka, key: bytes | None, value: bytes | None) -> None:
    """Null and empty are different."""
    topic = kafka.topic()
    kafka.append(topic, value, key)
    _, _, reader = member(kafka, topic)
    (record,) = reader.read(1)
    assert (record.partition, record.offset) == (Partition(topic, 0), 0)
    assert contents(record) == (key, value, ())
    assert record.timestamp_ms > 0


def test_the_end_of_a_partition_is_reported(kafka: Kafka) -> None:
    """It follows the last record, each time that the end is reached. An empty partition has an end too."""
    topic = kafka.topic(2)
    full, empty = Partition(topic, 0), Partition(topic, 1)
    for _ in range(3):
        kafka.append(topic, b"x", number=0)
    _, _, reader = member(kafka, topic)
    reader.until(lambda: {end.partition for end in reader.ends} == {full, empty})
    assert set(reader.ends) == {PartitionEnd(full, 3), PartitionEnd(empty, 0)}
    assert len(reader.records) == 3
    kafka.append(topic, b"x", number=0)
    reader.until(lambda: PartitionEnd(full, 4) in reader.ends)
    assert len(reader.records) == 4


# ---------------------------------------------------------------- pause and resume


def test_the_client_knows_the_end_of_a_partition_that_it_fetches(kafka: Kafka) -> None:
    """The end includes records that were not polled yet. A partition that was never fetched may have no known end."""
    topic = kafka.topic()
    consumer, _, reader = member(kafka, topic)
    for number in range(5):
        kafka.append(topic, str(number).encode())
    reader.until(lambda: reader.records, limit=1)
    assert consumer.end(Partition(topic, 0)) == 5
    assert consumer.end(Partition("never heard of", 0)) == -1


def test_a_paused_partition_returns_no_records_and_loses_none(kafka: Kafka) -> None:
    """Other partitions continue. After the resume, the first record is the one after the last that was returned."""
    topic = kafka.topic(2)
    paused, other = Partition(topic, 0), Partition(topic, 1)
    for _ in range(20):
        kafka.append(topic, b"x", number=0)
    consumer, _, reader = member(kafka, topic)
    reader.read(5, limit=2)
    consumer.pause([paused])
    kafka.append(topic, b"x", number=1)
    assert {r.partition for r in reader.until(lambda: reader.records[-1].partition == other)} == {other}
    assert reader.go_on(0.5) == []
    consumer.resume([paused])
    reader.read(21)
    assert [record.offset for record in reader.records if record.partition == paused] == list(range(20))


def test_a_consumer_can_poll_while_all_its_partitions_are_paused(kafka: Kafka) -> None:
    """A process with a full queue stays in the group this way, also when records come."""
    topic = kafka.topic()
    consumer, _, reader = member(kafka, topic)
    consumer.pause([Partition(topic, 0)])
    kafka.append(topic, b"x")
    assert reader.go_on(0.3) == []
    consumer.resume([Partition(topic, 0)])
    assert len(reader.read(1)) == 1


def test_a_resume_takes_effect_at_once(kafka: Kafka) -> None:
    """Also if no record was fetched before: the client's thread for the broker then sleeps for most of a second."""
    topic = kafka.topic()
    consumer, _, reader = member(kafka, topic)
    waits = []
    for number in range(3):
        consumer.pause([Partition(topic, 0)])
        kafka.append(topic, b"x")
        assert reader.go_on(1.3) == []
        resumed = kafka.now()
        consumer.resume([Partition(topic, 0)])
        reader.until(lambda number=number: len(reader.records) > number)  # type: ignore[misc]
        waits.append(kafka.now() - resumed)
    assert min(waits) < 0.4


def test_pausing_a_partition_that_is_not_assigned_does_nothing(kafka: Kafka) -> None:
    """The partition may have been revoked in between."""
    topic = kafka.topic()
    consumer, _, reader = member(kafka, topic)
    foreign = Partition(kafka.topic(), 0)
    consumer.pause([foreign])
    consumer.resume([foreign])
    kafka.append(topic, b"x")
    assert len(reader.read(1)) == 1


# ---------------------------------------------------------------- commits


def test_the_reply_to_a_commit_comes_in_a_later_poll(kafka: Kafka) -> None:
    """The reply has the offsets that were sent. It comes once, and only during a poll."""
    topic = kafka.topic(2)
    consumer, listener, reader = member(kafka, topic)
    wanted = {Partition(topic, 0): Position(3), Partition(topic, 1): Position(7, "a b, c")}
    consumer.commit(wanted)
    assert listener.answers == []
    reader.until(lambda: listener.answers)
    reader.go_on(0.2)
    assert listener.answers == [(wanted, None)]


def test_replies_to_commits_come_in_the_order_of_the_commits(kafka: Kafka) -> None:
    topic = kafka.topic()
    consumer, listener, reader = member(kafka, topic)
    partition = Partition(topic, 0)
    for offset in (1, 2, 3):
        consumer.commit({partition: Position(offset)})
    reader.until(lambda: len(listener.answers) == 3)
    assert [answered[partition].offset for answered, _ in listener.answers] == [1, 2, 3]


def test_the_next_owner_begins_at_the_committed_offset(kafka: Kafka) -> None:
    """Without one it begins at the oldest record. It also finds commit metadata of the greatest length."""
    topic = kafka.topic(2)
    for number in (0, 1):
        for _ in range(5):
            kafka.append(topic, b"x", number=number)
    consumer, listener, reader = member(kafka, topic)
    partition = Partition(topic, 0)
    assert reader.commit(consumer, listener, {partition: Position(3, "x" * 4_095)}) is None
    consumer.close()
    _, theirs, reader = member(kafka, topic)
    records = reader.read(7)
    firsts = {p: min(r.offset for r in records if r.partition == p) for p in partitions(topic, 2)}
    assert firsts == {partition: 3, Partition(topic, 1): 0}
    assert theirs.found == {partition: Position(3, "x" * 4_095), Partition(topic, 1): None}


def test_reading_a_record_does_not_commit_it(kafka: Kafka) -> None:
    """The next owner reads a record again if it was not committed."""
    topic = kafka.topic()
    for _ in range(3):
        kafka.append(topic, b"x")
    consumer, _, reader = member(kafka, topic)
    reader.read(3)
    consumer.close()
    assert [record.offset for record in member(kafka, topic)[2].read(3)] == [0, 1, 2]


def test_the_owner_can_begin_at_an_offset_that_was_not_committed(kafka: Kafka) -> None:
    """Another store may have the offset. The committed offset counts for partitions that the store does not have."""
    topic = kafka.topic(2)
    ours, other = Partition(topic, 0), Partition(topic, 1)
    for number in (0, 1):
        for _ in range(5):
            kafka.append(topic, b"x", number=number)
    consumer, recorder, reader = member(kafka, topic)
    assert reader.commit(consumer, recorder, {ours: Position(1), other: Position(2)}) is None
    consumer.close()
    successor, listener = kafka.consumer(), Recorder(assigned=lambda _positions: {ours: 4})
    listener.listen(successor, topic)
    records = Reader(kafka, successor).read(4)
    assert {p: min(r.offset for r in records if r.partition == p) for p in (ours, other)} == {ours: 4, other: 2}


def test_a_partition_waits_until_its_owner_can_begin(kafka: Kafka) -> None:
    """None of its records is read before. It begins at the owner's offset, or else at the committed offset."""
    topic = kafka.topic(2)
    ours, other = Partition(topic, 0), Partition(topic, 1)
    for number in (0, 1):
        for _ in range(5):
            kafka.append(topic, b"x", number=number)
    consumer, recorder, reader = member(kafka, topic)
    assert reader.commit(consumer, recorder, {other: Position(2)}) is None
    consumer.close()
    refusals: list[bool] = []

    def begin(_positions: object) -> object:
        if len(refusals) < 2:
            refusals.append(True)
            return False
        return {ours: 4}

    successor, listener = kafka.consumer(), Recorder(assigned=begin)
    listener.is_ready = False
    listener.listen(successor, topic)
    reader = Reader(kafka, successor)
    assert reader.go_on(3.0) == []
    assert listener.events == []
    listener.is_ready = True
    records = reader.read(4)
    assert {p: min(r.offset for r in records if r.partition == p) for p in (ours, other)} == {ours: 4, other: 2}
    assert listener.events == ["assigned"] * 3
    successor.close()


def test_a_partition_without_a_committed_offset_may_wait_too(kafka: Kafka) -> None:
    """The partition then begins at the oldest record."""
    topic = kafka.topic(1)
    for _ in range(3):
        kafka.append(topic, b"x")
    consumer, listener = kafka.consumer(), Recorder()
    listener.is_ready = False
    listener.listen(consumer, topic)
    reader = Reader(kafka, consumer)
    reader.go_on(2.0)
    listener.is_ready = True
    assert [record.offset for record in reader.read(3)] == [0, 1, 2]
    consumer.close()


def test_a_member_has_a_membership(kafka: Kafka) -> None:
    """Transactions are committed with it."""
    consumer, _, _ = member(kafka, kafka.topic())
    assert consumer.membership() is not None
