"""Back-off and start limits of tasks that were dispatched together."""

from __future__ import annotations

from worker.core.model import Partition, Record
from worker.core.owned_partition import OwnedPartition


def test_the_start_limit_rises_above_every_dispatched_task() -> None:
    """This holds even if the last task of a chunk does not have the highest offset."""
    owned = OwnedPartition(Partition("r", 0), start_offset=0, ordering="key")
    for offset, key in enumerate([b"a", b"b", b"a", b"b", b"a"]):
        owned.admit(Record(owned.partition, offset, key, b"x"))
    first = owned.take(2, 0.0, below=float("inf"))
    assert [task.offset for task in first] == [0, 1]
    for task in first:  # the executor has rejected both
        assert task.group is not None
        task.group.blocked = True
    assert owned.head(0.0) is None  # the poll thread looks for work meanwhile
    for task in first:
        owned.answering(task)
    taken = [task.offset for task in owned.take(10, 0.0, below=float("inf"))]
    assert sorted(taken) == [2, 3, 4]
    assert owned.metadata(clean=False).started_below == 5, taken


def test_the_back_off_of_the_first_request_of_a_batch_counts() -> None:
    """A later request of the same batch with a shorter back-off does not end it."""
    owned = OwnedPartition(Partition("r", 0), start_offset=0, batches=True)
    for offset in range(4):
        owned.admit(Record(owned.partition, offset, None, b"x"))
    tasks = owned.take(2, 0.0, below=float("inf"))
    for task, after in zip(tasks, (100.0, 1.0), strict=True):
        assert task.group is not None
        task.attempt, task.group.blocked = 1, True
        owned.fail(task)
        owned.requeue(task, after)
    assert owned.head(50.0) is None
    assert owned.head(101.0) == 0


def test_a_cancelled_request_does_not_end_the_back_off_of_an_earlier_one() -> None:
    """The first request has failed while the other one of its batch still runs."""
    owned = OwnedPartition(Partition("r", 0), start_offset=0, batches=True)
    for offset in range(4):
        owned.admit(Record(owned.partition, offset, None, b"x"))
    failed, runs = owned.take(2, 0.0, below=float("inf"))
    assert failed.group is not None
    failed.attempt, failed.group.blocked = 1, True
    owned.fail(failed)
    owned.requeue(failed, 100.0)
    pulled = owned.pull(2)
    assert pulled is not None
    owned.answering(pulled)
    owned.answering(runs)
    assert owned.head(50.0) is None
    assert owned.head(101.0) == 0
