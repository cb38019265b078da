"""A failed task starts again only when a commit has recorded its failure, wherever it is in its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worker.core.assignment import Assignment
from worker.core.commit_metadata import CommitMetadata, Detached
from worker.core.dispatch import DispatchRule, rule_for_batches
from worker.core.model import Partition, Record, Task

if TYPE_CHECKING:
    from worker.core.owned_partition import OwnedPartition

PLACE = Partition("t", 0)
BATCHES = rule_for_batches(size=3, one_partition=False, unlimited=False)


def an_assignment(
    ordering: str = "partition", left: CommitMetadata | None = None, *, first: int = 0, rows: int = 9
) -> Assignment:
    assignment = Assignment(ordering, batches=True)
    assignment.assign({PLACE: first}, {PLACE: left} if left else {})
    assignment.admit([Record(PLACE, offset, None, b"x") for offset in range(first, rows)])
    return assignment


def commit(owned: OwnedPartition) -> CommitMetadata:
    """Confirm a commit of what is known now, and return what the next owner would read."""
    recorded = owned.metadata(clean=False, process="aaaaaaaa")
    owned.changed = False
    owned.confirm((owned.position, ""), owned.starts.requested, owned.starts.restarts, recorded)
    return recorded


def attempt(assignment: Assignment, rule: DispatchRule = BATCHES, now: float = 0.0) -> list[Task]:
    """Start the next tasks, and return them."""
    tasks = assignment.take(rule, now, in_flight=0)
    for task in tasks:
        task.attempt += 1
        if task.group is not None:
            task.group.blocked = True
    return tasks


def fail(owned: OwnedPartition, *tasks: Task) -> None:
    for task in tasks:
        owned.fail(task)
        owned.requeue(task)


def offsets(tasks: list[Task]) -> list[int]:
    return [task.offset for task in tasks]


def began(assignment: Assignment) -> tuple[OwnedPartition, list[Task]]:
    """Start a first batch of three."""
    owned = assignment.partitions[PLACE]
    assignment.request_starts(BATCHES, 0.0, in_flight=0)
    commit(owned)
    return owned, attempt(assignment)


def test_a_failed_batch_starts_again_after_one_commit() -> None:
    assignment = an_assignment()
    owned, batch = began(assignment)
    fail(owned, *batch)
    assignment.request_starts(BATCHES, 0.0, in_flight=0)
    assert attempt(assignment) == []
    commit(owned)
    assert offsets(attempt(assignment)) == [0, 1, 2]


def test_a_crash_counts_against_a_failed_task_only_if_it_may_have_started_again() -> None:
    """Two batches failed, and the second one is due first."""
    assignment = an_assignment("unordered", rows=6)
    owned = assignment.partitions[PLACE]
    for ready_at in (10.0, 5.0):
        assignment.request_starts(BATCHES, 0.0, in_flight=0)
        commit(owned)
        for task in attempt(assignment):
            owned.fail(task)
            owned.requeue(task, ready_at)
    assignment.request_starts(BATCHES, 11.0, in_flight=0)
    left = commit(owned)
    ran = offsets(attempt(assignment, now=11.0))
    next_owner = an_assignment("unordered", left, rows=6).partitions[PLACE]
    assert {offset for offset, attempts in next_owner.starts.attempts.items() if attempts == 2} <= set(ran)


def test_a_failed_task_behind_another_one_of_its_key_still_waits() -> None:
    left = CommitMetadata(attempts={0: 1, 1: 1}, waiting=frozenset({0, 1}))
    assignment, rule = Assignment("key"), DispatchRule(1, 1)
    assignment.assign({PLACE: 0}, {PLACE: left})
    assignment.admit([Record(PLACE, offset, b"k" if offset < 2 else None, b"x") for offset in range(6)])
    owned = assignment.partitions[PLACE]
    assignment.request_starts(rule, 0.0, in_flight=0)
    commit(owned)
    (task,) = attempt(assignment, rule)
    owned.fail(task)
    owned.requeue(task, 600.0)
    assignment.request_starts(rule, 1.0, in_flight=0)
    assert commit(owned).waiting == frozenset({0, 1})


def test_the_lowest_failed_task_starts_while_a_cancel_request_holds_back_the_others() -> None:
    """Two tasks that were taken over are due first. One is behind the cancelled task, the other is not recorded yet."""
    left = CommitMetadata(detached={15: Detached(1, "ab"), 20: Detached(1, "cd")})
    alone = DispatchRule(1, 1, alone=True)
    assignment = an_assignment("unordered", left, rows=25)
    owned = assignment.partitions[PLACE]
    for _ in range(6):
        assignment.request_starts(alone, 0.0, in_flight=0)
        commit(owned)
        (task,) = attempt(assignment, alone)
        if task.offset == 5:
            owned.fail(task)
            owned.requeue(task, 3.0)
        else:
            owned.answering(task)
            owned.answered(task.offset)
    owned.take_over(20, 1, 0.5)
    owned.take_over(15, 1, 1.0)
    owned.cancelled_from = 18
    assignment.request_starts(alone, 4.0, in_flight=0)
    commit(owned)
    assert offsets(attempt(assignment, alone, 4.0)) == [5]


def test_a_crash_in_the_second_attempt_of_a_batch_counts_against_a_task_that_ran() -> None:
    """The first one is acknowledged early, and the commit for it says that the others may have started."""
    assignment = an_assignment()
    owned, batch = began(assignment)
    fail(owned, *batch)
    assignment.request_starts(BATCHES, 0.0, in_flight=0)
    commit(owned)
    again = attempt(assignment)
    owned.answering(again[0])
    owned.answered(0)
    left = commit(owned)
    assert left.waiting == frozenset()
    next_owner = an_assignment(left=left, first=1)
    assert next_owner.partitions[PLACE].starts.attempts == {1: 2, 2: 1}


def test_a_task_that_failed_behind_the_head_waits_for_its_commit() -> None:
    """It failed alone, and the rest of its batch was stopped, because another partition left."""
    assignment = an_assignment()
    owned, (first, second, third) = began(assignment)
    fail(owned, third)
    for stopped in (first, second):
        stopped.attempt -= 1
        owned.requeue(stopped)
    assert offsets(attempt(assignment)) == [0, 1]


def test_a_failed_task_of_the_previous_owner_waits_behind_the_head_as_well() -> None:
    left = CommitMetadata(attempts={2: 1}, waiting=frozenset({2}))
    assignment, rule = an_assignment(left=left), DispatchRule(4, 1)
    owned = assignment.partitions[PLACE]
    owned.starts.confirm(9, {})
    assert offsets(attempt(assignment, rule)) == [0, 1]


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_in_an_outage_a_failed_task_of_the_previous_owner_holds_up_its_own_key_only(ordering: str) -> None:
    assignment = Assignment(ordering)
    assignment.assign({PLACE: 0}, {PLACE: CommitMetadata(attempts={2: 1}, waiting=frozenset({2}))})
    keys = [b"a", b"b", b"c", b"c", b"d"]
    assignment.admit([Record(PLACE, offset, key, b"x") for offset, key in enumerate(keys)])
    outage = DispatchRule(9, 1, unlimited=True)
    started = offsets(attempt(assignment, outage))
    assert started == ([0, 1, 4] if ordering == "key" else [0, 1, 3, 4])
    assignment.request_starts(outage, 0.0, in_flight=3)
    commit(assignment.partitions[PLACE])
    assert offsets(attempt(assignment, outage)) == ([2, 3] if ordering == "key" else [2])


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_in_an_outage_failed_tasks_that_wait_for_a_commit_take_no_place_of_others(ordering: str) -> None:
    assignment = Assignment(ordering)
    assignment.assign({PLACE: 0})
    assignment.admit([Record(PLACE, offset, b"%d" % offset, b"x") for offset in range(5)])
    fail(assignment.partitions[PLACE], *attempt(assignment, DispatchRule(2, 1, unlimited=True)))
    assert assignment.startable(0.0) == (5, 5 * assignment.partitions[PLACE].queue.size // 5)
    assert assignment.startable(0.0, outage=True)[0] == 3


def test_in_order_a_failed_task_holds_up_its_partition_in_an_outage() -> None:
    """So more records of it need not be fetched."""
    assignment = an_assignment(rows=5)
    fail(assignment.partitions[PLACE], *attempt(assignment, DispatchRule(2, 1, unlimited=True)))
    assert assignment.startable(0.0, outage=True)[0] == 5
