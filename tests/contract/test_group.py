"""The behaviour of the group that the worker relies on when partitions are assigned and revoked."""

from __future__ import annotations

import contextlib

import pytest

from tests.contract.kafkas import Kafka, Reader, partitions
from tests.contract.recorder import Recorder
from worker.core.model import Partition
from worker.kafka.ports import Position


def test_nothing_is_assigned_before_the_first_poll(kafka: Kafka) -> None:
    """Callbacks run only inside calls of the consumer."""
    consumer, listener = kafka.consumer(), Recorder()
    listener.listen(consumer, kafka.topic())
    kafka.idle(1.0)
    assert listener.events == []
    Reader(kafka, consumer).until(lambda: listener.owned)
    assert listener.events == ["assigned"]


def test_members_share_the_partitions(kafka: Kafka) -> None:
    """A new member gets partitions after the other one was asked to give them back. When it leaves, they return."""
    topic = kafka.topic(4)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(), Recorder()
    ours.listen(first, topic)
    Reader(kafka, first).until(lambda: len(ours.owned) == 4)
    theirs.listen(second, topic)
    Reader(kafka, first, second).until(lambda: len(theirs.owned) == 2)
    assert ours.owned | theirs.owned == partitions(topic, 4)
    assert ours.owned.isdisjoint(theirs.owned)
    assert "revoked" in ours.events
    assert theirs.events == ["assigned"]
    second.close()
    Reader(kafka, first).until(lambda: len(ours.owned) == 4)
    assert "lost" not in ours.events


def test_partitions_move_faster_than_the_heartbeat_interval_of_the_group(kafka: Kafka) -> None:
    """A member sends a heartbeat every second, whatever interval the group has: 5 s by default, and 15 s here."""
    topic = kafka.topic(4)
    kafka.slow_heartbeats()
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(), Recorder()
    ours.listen(first, topic)
    Reader(kafka, first).until(lambda: len(ours.owned) == 4)
    theirs.listen(second, topic)
    came = kafka.now()
    Reader(kafka, first, second).until(lambda: len(theirs.owned) == 2)
    assert kafka.now() - came < 8


def test_a_rebalance_does_not_touch_a_partition_that_stays(kafka: Kafka) -> None:
    """Cooperative: a partition that a member keeps is neither revoked nor read again."""
    topic = kafka.topic(2)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(), Recorder()
    ours.listen(first, topic)
    for number in (0, 1):
        kafka.append(topic, b"x", number=number)
    reader = Reader(kafka, first, second)
    Reader(kafka, first).read(2)
    theirs.listen(second, topic)
    again = reader.until(lambda: theirs.owned and len(reader.records) >= 1)
    (kept,) = ours.owned
    kafka.append(topic, b"y", number=kept.number)
    reader.until(lambda: any(record.partition == kept for record in reader.records))
    of_kept = [record.value for record in reader.records if record.partition == kept]
    assert of_kept == [b"y"], again


def test_a_revoked_partition_stays_until_it_is_released(kafka: Kafka) -> None:
    """Until then it can be committed, and polls continue. The new owner begins at the committed offset."""
    topic = kafka.topic(2)
    for number in (0, 1):
        for _ in range(5):
            kafka.append(topic, b"x", number=number)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(revoked=lambda _: False), Recorder()
    ours.listen(first, topic)
    Reader(kafka, first).read(10)
    theirs.listen(second, topic)
    reader = Reader(kafka, first, second)
    reader.until(lambda: "revoked" in ours.events)
    reader.go_on(3.0)
    assert (theirs.owned, len(ours.owned)) == (set(), 2)
    positions = dict.fromkeys(ours.owned, Position(3))
    assert reader.commit(first, ours, positions) is None
    ours.release(sorted(ours.owned)[:0])
    reader.go_on(1.0)
    assert theirs.owned == set()
    revoked = [partition for partition in sorted(ours.owned) if partition in ours.last_revoked]
    ours.release(revoked)
    (record, *_) = reader.read(1)
    assert record.partition in theirs.owned
    assert record.offset == 3
    assert "lost" not in ours.events


def test_a_member_that_holds_partitions_can_be_closed(kafka: Kafka) -> None:
    """The other member then gets the held partitions."""
    topic = kafka.topic(2)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(revoked=lambda _: False), Recorder()
    ours.listen(first, topic)
    Reader(kafka, first).until(lambda: len(ours.owned) == 2)
    theirs.listen(second, topic)
    reader = Reader(kafka, first, second)
    reader.until(lambda: "revoked" in ours.events)
    first.close()
    Reader(kafka, second).until(lambda: len(theirs.owned) == 2)


def test_a_partition_that_comes_back_is_not_paused(kafka: Kafka) -> None:
    """It was paused when it was revoked. The pause does not carry over to its new lease."""
    topic = kafka.topic(2)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(), Recorder()
    ours.listen(first, topic)
    Reader(kafka, first).until(lambda: len(ours.owned) == 2)
    first.pause(sorted(ours.owned))
    theirs.listen(second, topic)
    Reader(kafka, first, second).until(lambda: theirs.owned)
    (gone,) = theirs.owned
    second.close()
    Reader(kafka, first).until(lambda: len(ours.owned) == 2)
    for partition in partitions(topic, 2):
        kafka.append(topic, b"x", number=partition.number)
    reader = Reader(kafka, first)
    assert {record.partition for record in reader.read(1)} == {gone}
    assert reader.go_on(0.3) == []


def test_a_member_that_does_not_poll_for_too_long_loses_its_partitions(kafka: Kafka) -> None:
    """They are reported as lost, not as revoked. The member gets them back under a new lease."""
    topic, listener = kafka.topic(), Recorder()
    partition = Partition(topic, 0)
    consumer = kafka.consumer(max_poll_interval=2.0)
    listener.listen(consumer, topic)
    reader = Reader(kafka, consumer)
    reader.until(lambda: listener.owned)
    kafka.idle(4.0)
    assert "lost" not in listener.events, "told outside of our calls"
    reader.until(lambda: "lost" in listener.events)
    assert "revoked" not in listener.events
    reader.until(lambda: listener.events.count("assigned") == 2)
    kafka.append(topic, b"x")
    assert [record.partition for record in reader.until(lambda: reader.records)] == [partition]


def test_a_member_that_was_removed_from_the_group_cannot_commit(kafka: Kafka) -> None:
    topic, listener = kafka.topic(), Recorder()
    consumer = kafka.consumer(max_poll_interval=2.0)
    listener.listen(consumer, topic)
    Reader(kafka, consumer).until(lambda: listener.owned)
    kafka.idle(4.0)
    with contextlib.ExitStack() as stack:
        other, theirs = kafka.consumer(), Recorder()
        stack.callback(other.close)
        theirs.listen(other, topic)
        Reader(kafka, other).until(lambda: theirs.owned)
        consumer.commit({Partition(topic, 0): Position(1)})
        Reader(kafka, consumer).until(lambda: listener.answers)
        failure = listener.answers[0][1]
        assert failure is not None
        assert failure.code in {"UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH", "ILLEGAL_GENERATION", "_STATE"}


def test_a_close_revokes_the_partitions(kafka: Kafka) -> None:
    """The next member begins at the offsets that were committed before."""
    topic = kafka.topic(2)
    consumer, listener = kafka.consumer(), Recorder()
    listener.listen(consumer, topic)
    reader = Reader(kafka, consumer)
    reader.until(lambda: len(listener.owned) == 2)
    for number in (0, 1, 0, 1, 0, 1):
        kafka.append(topic, b"x", number=number)
    assert reader.commit(consumer, listener, dict.fromkeys(listener.owned, Position(2))) is None
    consumer.close()
    assert listener.events == ["assigned", "committed", "revoked"]
    successor, theirs = kafka.consumer(), Recorder()
    theirs.listen(successor, topic)
    assert [record.offset for record in Reader(kafka, successor).read(2)] == [2, 2]


def test_the_next_member_gets_the_partitions_of_a_closed_one_immediately(kafka: Kafka) -> None:
    """The group does not wait for the end of its session."""
    topic, listener, theirs = kafka.topic(), Recorder(), Recorder()
    consumer, successor = kafka.consumer(), kafka.consumer()
    listener.listen(consumer, topic)
    Reader(kafka, consumer).until(lambda: listener.owned)
    theirs.listen(successor, topic)
    Reader(kafka, consumer, successor).go_on(1.0)
    started = kafka.now()
    consumer.close()
    Reader(kafka, successor).until(lambda: theirs.owned)
    assert kafka.now() - started < 5


def test_a_consumer_may_be_closed_twice_and_before_it_joined(kafka: Kafka) -> None:
    consumer = kafka.consumer()
    Recorder().listen(consumer, kafka.topic())
    consumer.close()
    consumer.close()


# ---------------------------------------------------------------- exceptions in callbacks


class OopsError(Exception):
    """The error of a defect in a callback."""


def oops(*_: object) -> None:
    raise OopsError


@pytest.mark.parametrize("callback", ["assigned", "committed", "revoked"])
def test_an_exception_of_a_callback_surfaces_after_the_call(kafka: Kafka, callback: str) -> None:
    """It surfaces once. The process then ends, and the next member gets every record."""
    topic = kafka.topic(2)
    for number in (0, 1):
        kafka.append(topic, b"x", number=number)
    consumer, listener, other = kafka.consumer(), Recorder(**{callback: oops}), kafka.consumer()
    listener.listen(consumer, topic)
    reader, theirs = Reader(kafka, consumer), Recorder()
    if callback == "assigned":
        with pytest.raises(OopsError):
            reader.until(lambda: False)
    else:
        reader.until(lambda: listener.owned)
    if callback == "committed":
        consumer.commit({Partition(topic, 0): Position(0)})
        with pytest.raises(OopsError):
            reader.until(lambda: False)
    theirs.listen(other, topic)
    if callback == "revoked":
        with pytest.raises(OopsError):
            Reader(kafka, consumer, other).until(lambda: False)
    with contextlib.suppress(OopsError):
        consumer.close()
    assert len(Reader(kafka, other).read(2)) == 2
