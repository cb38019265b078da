"""What the worker relies on when partitions come and go."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.contract.kafkas import Kafka, Reader, partitions
from tests.contract.recorder import Recorder
from worker.core.model import Partition
from worker.kafka.ports import Position

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_nothing_is_assigned_before_the_first_poll(kafka: Kafka) -> None:
    """Callbacks run inside our calls, never beside them."""
    consumer, listener = kafka.consumer(), Recorder()
    consumer.subscribe([kafka.topic()], listener)
    kafka.idle(1.0)
    assert listener.events == []
    Reader(kafka, consumer).until(lambda: listener.owned)
    assert listener.events == ["assigned"]


def test_members_share_the_partitions(kafka: Kafka) -> None:
    """When one comes, what it shall have is revoked from the other first; when one goes, the other has all."""
    topic = kafka.topic(4)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(), Recorder()
    first.subscribe([topic], ours)
    Reader(kafka, first).until(lambda: len(ours.owned) == 4)
    second.subscribe([topic], theirs)
    Reader(kafka, first, second).until(lambda: len(theirs.owned) == 2)
    assert ours.owned | theirs.owned == partitions(topic, 4)
    assert ours.owned.isdisjoint(theirs.owned)
    assert "revoked" in ours.events
    assert theirs.events == ["assigned"]
    second.close()
    Reader(kafka, first).until(lambda: len(ours.owned) == 4)
    assert "lost" not in ours.events


def test_what_stays_is_not_touched_by_a_rebalance(kafka: Kafka) -> None:
    """Cooperative: a partition that a member keeps is neither revoked nor read again."""
    topic = kafka.topic(2)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(), Recorder()
    first.subscribe([topic], ours)
    for number in (0, 1):
        kafka.append(topic, b"x", number=number)
    reader = Reader(kafka, first, second)
    Reader(kafka, first).read(2)
    second.subscribe([topic], theirs)
    again = reader.until(lambda: theirs.owned and len(reader.records) >= 1)
    (kept,) = ours.owned
    kafka.append(topic, b"y", number=kept.number)
    reader.until(lambda: any(record.partition == kept for record in reader.records))
    of_kept = [record.value for record in reader.records if record.partition == kept]
    assert of_kept == [b"y"], again


def test_a_partition_can_be_committed_until_the_revoke_returns(kafka: Kafka) -> None:
    """The new owner begins there."""
    topic = kafka.topic(2)
    failures: list[object] = []

    def settle(revoked: Sequence[Partition]) -> None:
        failures.append(first.commit_now(dict.fromkeys(revoked, Position(3))))

    for number in (0, 1):
        for _ in range(5):
            kafka.append(topic, b"x", number=number)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(revoked=settle), Recorder()
    first.subscribe([topic], ours)
    Reader(kafka, first).read(10)
    second.subscribe([topic], theirs)
    reader = Reader(kafka, first, second)
    (record, *_) = reader.read(1)
    assert failures == [None]
    assert record.partition in theirs.owned
    assert record.offset == 3


def test_a_partition_that_comes_back_is_not_paused(kafka: Kafka) -> None:
    """It was paused when it went; it comes under a new lease, which knows nothing of that."""
    topic = kafka.topic(2)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(), Recorder()
    first.subscribe([topic], ours)
    Reader(kafka, first).until(lambda: len(ours.owned) == 2)
    first.pause(sorted(ours.owned))
    second.subscribe([topic], theirs)
    Reader(kafka, first, second).until(lambda: theirs.owned)
    (gone,) = theirs.owned
    second.close()
    Reader(kafka, first).until(lambda: len(ours.owned) == 2)
    for partition in partitions(topic, 2):
        kafka.append(topic, b"x", number=partition.number)
    reader = Reader(kafka, first)
    assert {record.partition for record in reader.read(1)} == {gone}
    assert reader.go_on(0.3) == []


def test_who_does_not_poll_for_too_long_loses_everything(kafka: Kafka) -> None:
    """It is told so, not asked to let go; it cannot commit any more, and it is taken back with a new lease."""
    topic, listener = kafka.topic(), Recorder()
    partition = Partition(topic, 0)
    consumer = kafka.consumer(max_poll_interval=2.0)
    consumer.subscribe([topic], listener)
    reader = Reader(kafka, consumer)
    reader.until(lambda: listener.owned)
    kafka.idle(4.0)
    assert "lost" not in listener.events, "told outside of our calls"
    reader.until(lambda: "lost" in listener.events)
    assert "revoked" not in listener.events
    reader.until(lambda: listener.events.count("assigned") == 2)
    kafka.append(topic, b"x")
    assert [record.partition for record in reader.until(lambda: reader.records)] == [partition]


def test_who_was_put_out_cannot_commit(kafka: Kafka) -> None:
    topic, listener = kafka.topic(), Recorder()
    consumer = kafka.consumer(max_poll_interval=2.0)
    consumer.subscribe([topic], listener)
    Reader(kafka, consumer).until(lambda: listener.owned)
    kafka.idle(4.0)
    with contextlib.ExitStack() as stack:
        other, theirs = kafka.consumer(), Recorder()
        stack.callback(other.close)
        other.subscribe([topic], theirs)
        Reader(kafka, other).until(lambda: theirs.owned)
        failure = consumer.commit_now({Partition(topic, 0): Position(1)})
        assert failure is not None
        assert failure.code in {"UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH", "ILLEGAL_GENERATION", "_STATE"}


def test_closing_revokes_and_what_is_committed_then_counts(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    answers: list[object] = []

    def settle(revoked: Sequence[Partition]) -> None:
        answers.append(consumer.commit_now(dict.fromkeys(revoked, Position(2))))

    consumer, listener = kafka.consumer(), Recorder(revoked=settle)
    consumer.subscribe([topic], listener)
    Reader(kafka, consumer).until(lambda: len(listener.owned) == 2)
    for number in (0, 1, 0, 1, 0, 1):
        kafka.append(topic, b"x", number=number)
    consumer.close()
    assert listener.events == ["assigned", "revoked"]
    assert answers == [None]
    successor, theirs = kafka.consumer(), Recorder()
    successor.subscribe([topic], theirs)
    assert [record.offset for record in Reader(kafka, successor).read(2)] == [2, 2]


def test_the_next_member_has_the_partitions_of_a_closed_one_at_once(kafka: Kafka) -> None:
    """Not only when its session is over."""
    topic, listener, theirs = kafka.topic(), Recorder(), Recorder()
    consumer, successor = kafka.consumer(), kafka.consumer()
    consumer.subscribe([topic], listener)
    Reader(kafka, consumer).until(lambda: listener.owned)
    successor.subscribe([topic], theirs)
    Reader(kafka, consumer, successor).go_on(1.0)
    started = kafka.now()
    consumer.close()
    Reader(kafka, successor).until(lambda: theirs.owned)
    assert kafka.now() - started < 5


def test_a_consumer_may_be_closed_twice_and_before_it_joined(kafka: Kafka) -> None:
    consumer = kafka.consumer()
    consumer.subscribe([kafka.topic()], Recorder())
    consumer.close()
    consumer.close()


# ---------------------------------------------------------------- exceptions in callbacks


class OopsError(Exception):
    """What a defect in a callback raises."""


def oops(*_: object) -> None:
    raise OopsError


@pytest.mark.parametrize("callback", ["assigned", "committed"])
def test_an_exception_of_a_callback_surfaces_after_the_call_and_loses_nothing(kafka: Kafka, callback: str) -> None:
    """Once; who goes on polling gets every record."""
    topic = kafka.topic()
    for _ in range(10):
        kafka.append(topic, b"x")
    consumer, listener = kafka.consumer(), Recorder(**{callback: oops})
    consumer.subscribe([topic], listener)
    reader = Reader(kafka, consumer)
    raised: list[OopsError] = []
    if callback == "committed":
        reader.until(lambda: listener.owned, limit=1)
        consumer.commit({Partition(topic, 0): Position(0)})
        kafka.idle(0.5)  # the answer and records are there, and come out of the same call
    while len(reader.records) < 10 or not raised:
        try:
            reader.until(lambda: len(reader.records) >= 10 and raised)
        except OopsError as error:
            raised.append(error)
    assert len(raised) == 1
    assert [record.offset for record in reader.records] == list(range(10))


def test_an_exception_while_revoking_does_not_keep_the_partition(kafka: Kafka) -> None:
    """It goes to its new owner all the same."""
    topic = kafka.topic(2)
    first, second, ours, theirs = kafka.consumer(), kafka.consumer(), Recorder(revoked=oops), Recorder()
    first.subscribe([topic], ours)
    Reader(kafka, first).until(lambda: len(ours.owned) == 2)
    second.subscribe([topic], theirs)
    with pytest.raises(OopsError):
        Reader(kafka, first, second).until(lambda: theirs.owned)
    Reader(kafka, first, second).until(lambda: theirs.owned)
    with pytest.raises(OopsError):
        first.close()
