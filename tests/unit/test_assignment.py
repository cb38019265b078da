"""Partitions take turns, so that a deep one does not starve the others. Commits record starts before they happen."""

from __future__ import annotations

import dataclasses
import math

import pytest

from worker.core.assignment import Assignment
from worker.core.commit_metadata import EMPTY, LIMIT, CommitMetadata, Suspects
from worker.core.dispatch import DispatchRule
from worker.core.model import Partition, PartitionEnd, Record
from worker.core.owned_partition import OwnedPartition

DEEP, SHALLOW, THIRD = (Partition("t", number) for number in range(3))
ALONE = DispatchRule(1, 1, alone=True)


def an_assignment(**queued: int) -> Assignment:
    assignment = Assignment()
    assignment.assign(dict.fromkeys([DEEP, SHALLOW, THIRD]))
    for name, count in queued.items():
        partition = {"deep": DEEP, "shallow": SHALLOW, "third": THIRD}[name]
        assignment.admit([Record(partition, offset, None, b"xx") for offset in range(count)])
    return assignment


def confirm(assignment: Assignment) -> None:
    """Confirm a commit that records all requested starts."""
    for owned in assignment:
        owned.confirm((owned.position, ""), owned.starts.requested, owned.starts.restarts, EMPTY)


def taken(assignment: Assignment, rule: DispatchRule, in_flight: int = 0, now: float = 0.0) -> list[tuple[int, int]]:
    """Take tasks, and return the partition number and offset of each."""
    tasks = assignment.take(rule, now, in_flight=in_flight)
    return [(task.record.partition.number, task.record.offset) for task in tasks]


def order(assignment: Assignment, limit: int, times: int) -> list[tuple[int, int]]:
    """Take up to ``limit`` tasks, ``times`` times, without start limits. Return the place of each."""
    return [place for _ in range(times) for place in taken(assignment, DispatchRule(limit, 1, unlimited=True))]


def requested(assignment: Assignment) -> list[int]:
    return [owned.starts.requested for owned in assignment]


# ---------------------------------------------------------------- turns


def test_partitions_take_turns_when_tasks_are_taken_one_by_one() -> None:
    assert order(an_assignment(deep=3, shallow=2, third=1), 1, 9) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 2)]


def test_a_chunk_is_shared_evenly_between_partitions() -> None:
    """If the chunk has fewer places than there are partitions, the partitions take turns."""
    assert order(an_assignment(deep=9, shallow=9), 4, 1) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assignment = an_assignment(deep=9, shallow=9, third=9)
    assert order(assignment, 2, 1) == [(0, 0), (1, 0)]
    assert order(assignment, 2, 1) == [(2, 0), (0, 1)]


def test_the_only_partition_with_tasks_gets_the_whole_chunk() -> None:
    assert len(order(an_assignment(deep=9), 6, 1)) == 6


def test_tasks_can_be_taken_from_one_partition_at_a_time() -> None:
    """The partitions take turns, call by call."""
    assignment, rule = an_assignment(deep=9, shallow=9), DispatchRule(4, 1, unlimited=True, one_partition=True)
    assert {number for number, _ in taken(assignment, rule)} == {0}
    assert {number for number, _ in taken(assignment, rule)} == {1}


def test_a_task_that_waits_for_its_next_attempt_keeps_its_place() -> None:
    """Other partitions continue. After its back-off the task is the first of its partition."""
    assignment, free = an_assignment(deep=2, shallow=2), DispatchRule(4, 1, unlimited=True)
    failed = assignment.take(DispatchRule(1, 1, unlimited=True), 0.0, in_flight=0)[0]
    owned = assignment.owner_of(failed)
    assert owned is assignment.partitions[DEEP]
    owned.requeue(failed, 10.0)
    assert order(assignment, 4, 2) == [(1, 0), (1, 1)]
    assert assignment.next_ready() == 10.0
    assert [task.record.offset for task in assignment.take(free, 10.0, in_flight=0)] == [0, 1]
    assert assignment.next_ready() == math.inf


def test_peek_shows_the_next_requests_in_turns() -> None:
    """``peek`` dispatches no task, so the order may still change."""
    assignment = an_assignment(deep=4, shallow=1)
    assert [(r.partition.number, r.offset) for r in assignment.peek(3)] == [(0, 0), (1, 0), (0, 1)]
    assert assignment.queued == 5


# ---------------------------------------------------------------- starts


def test_no_task_is_taken_before_a_commit_records_its_start() -> None:
    """When the commit is confirmed, the requested tasks may start, but no later ones."""
    assignment, rule = an_assignment(deep=9), DispatchRule(2, 1)
    assert taken(assignment, rule) == []
    assignment.request_starts(rule, 0.0, in_flight=0)
    assert requested(assignment) == [4, -1, -1]
    assert taken(assignment, rule) == []
    confirm(assignment)
    assert taken(assignment, DispatchRule(9, 1)) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_the_next_commit_records_tasks_that_started_without_one() -> None:
    assignment = an_assignment(deep=9)
    assert len(taken(assignment, DispatchRule(3, 1, unlimited=True))) == 3
    assert requested(assignment) == [3, -1, -1]


def test_an_idle_process_first_records_starts_of_requests_older_than_its_lease() -> None:
    """One of these requests may have just crashed the previous owner, before a commit recorded its start."""
    assignment, rule = an_assignment(deep=3), DispatchRule(2, 1, at_once=True)
    assignment.admit([PartitionEnd(DEEP, 3)])
    assert taken(assignment, rule) == []
    assignment.request_starts(DispatchRule(3, 3), 0.0, in_flight=0)
    confirm(assignment)
    assert taken(assignment, DispatchRule(3, 3)) == [(0, 0), (0, 1), (0, 2)]
    assignment.admit([Record(DEEP, 3, None, b"xx"), PartitionEnd(DEEP, 4)])
    assert taken(assignment, rule) == [], "the tasks before it are not answered"
    assignment.partitions[DEEP].answered(0, 1, 2)
    assert taken(assignment, rule) == [(0, 3)], "it was not there when the lease began"


def test_a_failed_task_starts_again_only_after_a_commit_even_in_an_idle_process() -> None:
    assignment, rule = an_assignment(deep=1), DispatchRule(2, 1, at_once=True)
    assignment.request_starts(rule, 0.0, in_flight=0)
    confirm(assignment)
    (task,) = assignment.take(rule, 0.0, in_flight=0)
    task.attempt = 1
    owned = assignment.partitions[DEEP]
    owned.fail(task)
    owned.requeue(task)
    assert taken(assignment, rule) == []
    assignment.request_starts(rule, 0.0, in_flight=0)
    assert taken(assignment, rule) == []
    confirm(assignment)
    assert taken(assignment, rule) == [(0, 0)]


def test_a_failed_task_needs_a_commit_also_while_commits_are_not_possible() -> None:
    """Otherwise the process would make all its attempts in an outage, and the next owner would make them again."""
    assignment, unlimited = an_assignment(deep=2), DispatchRule(1, 1, unlimited=True)
    owned = assignment.partitions[DEEP]
    (task,) = assignment.take(unlimited, 0.0, in_flight=0)
    task.attempt = 1
    owned.fail(task)
    owned.requeue(task)
    assignment.request_starts(unlimited, 0.0, in_flight=0)
    assert taken(assignment, unlimited) == []
    confirm(assignment)
    assert taken(assignment, unlimited) == [(0, 0)]


def test_a_failed_task_that_was_withdrawn_before_its_start_needs_no_other_commit() -> None:
    assignment, rule = an_assignment(deep=1), DispatchRule(1, 1)
    owned = assignment.partitions[DEEP]
    assignment.request_starts(rule, 0.0, in_flight=0)
    confirm(assignment)
    (task,) = assignment.take(rule, 0.0, in_flight=0)
    task.attempt = 1
    owned.fail(task)
    owned.requeue(task)
    assignment.request_starts(rule, 0.0, in_flight=0)
    confirm(assignment)
    (task,) = assignment.take(rule, 0.0, in_flight=0)
    owned.requeue(task)
    assert taken(assignment, rule) == [(0, 0)]


def test_the_start_of_a_task_alone_is_requested_only_when_no_task_is_in_flight() -> None:
    """Otherwise the metadata would name two tasks, and a crash could be counted for the wrong one."""
    assignment = an_assignment(deep=3, shallow=3)
    assignment.request_starts(ALONE, 0.0, in_flight=1)
    assert requested(assignment) == [-1, -1, -1]
    assignment.request_starts(ALONE, 0.0, in_flight=0)
    assert requested(assignment) == [1, -1, -1]
    confirm(assignment)
    assert taken(assignment, ALONE, in_flight=1) == []
    assert taken(assignment, ALONE) == [(0, 0)]


@pytest.mark.parametrize("strict", [False, True])
def test_only_a_strict_start_waits_for_the_answer_to_the_previous_task(strict: bool) -> None:
    """A crash must not use up the only attempt of a task because the previous answer is not confirmed yet."""
    assignment, rule = an_assignment(deep=3), DispatchRule(1, 1, alone=True, strict=strict)
    assignment.partitions[DEEP].unconfirmed = 1
    assignment.request_starts(rule, 0.0, in_flight=0)
    assert requested(assignment)[0] == (-1 if strict else 1)


def test_a_suspect_starts_alone() -> None:
    """When it is the turn of its partition, the other partitions wait until every suspect is answered."""
    assignment, chunk = Assignment(), DispatchRule(8, 1, unlimited=True)
    assignment.assign({DEEP: 0, SHALLOW: 0}, {DEEP: CommitMetadata(started_below=2)})
    for partition in (DEEP, SHALLOW):
        assignment.admit([Record(partition, offset, None, b"xx") for offset in range(4)])
    owned = assignment.partitions[DEEP]
    assert owned.starts.suspects == Suspects(2, 1)
    assert owned.has_suspect
    assert taken(assignment, chunk) == []
    assignment.request_starts(chunk, 0.0, in_flight=0)
    assert owned.starts.requested == 1
    confirm(assignment)
    tasks = assignment.take(chunk, 0.0, in_flight=0)
    assert [(task.record.partition, task.record.offset, task.attempt) for task in tasks] == [(DEEP, 0, 1)]


def test_the_start_of_a_suspect_is_not_requested_beside_other_tasks() -> None:
    """With a common start limit, a suspect would start before a commit records the answer to the previous task.

    A crash would be counted for both: seed 172 of the chaos suite, under at-least-once.
    """
    assignment, chunk = Assignment(), DispatchRule(8, 1)
    assignment.assign({DEEP: 0, SHALLOW: 0}, {SHALLOW: CommitMetadata(started_below=3)})
    for partition in (DEEP, SHALLOW):
        assignment.admit([Record(partition, offset, None, b"xx") for offset in range(4)])
    assignment.request_starts(chunk, 0.0, in_flight=0)
    assert requested(assignment) == [4, -1]
    confirm(assignment)
    assert [number for number, _ in taken(assignment, chunk)] == [0] * 4
    assignment.request_starts(chunk, 0.0, in_flight=4)
    assert requested(assignment) == [4, -1]
    assignment.request_starts(chunk, 0.0, in_flight=0)
    assert requested(assignment) == [4, 1]


# ---------------------------------------------------------------- leases


def test_every_assignment_has_a_new_lease() -> None:
    """This holds even if this process owned the partition before. The tasks of the old lease are dropped."""
    assignment = an_assignment(deep=2)
    old = assignment.partitions[DEEP]
    (new,) = assignment.assign({DEEP: 7})
    assert new.lease is not old.lease
    assert (old.lease.valid, new.lease.valid) == (False, True)
    assert (new.position, new.has_position) == (7, True)
    assert assignment.queued == 0


def test_a_task_of_a_former_lease_has_no_owner() -> None:
    """This holds even when this process owns the partition again."""
    assignment = an_assignment(deep=2)
    (task,) = assignment.take(DispatchRule(1, 1, unlimited=True), 0.0, in_flight=0)
    assert assignment.owner_of(task) is assignment.partitions[DEEP]
    assignment.assign({DEEP: 0})
    assert assignment.owner_of(task) is None
    assignment.end([DEEP])
    assert assignment.owner_of(task) is None
    assert [owned.partition for owned in assignment] == [SHALLOW, THIRD]


def test_records_of_partitions_that_are_not_owned_are_dropped() -> None:
    """The client may still return records of a partition that was just lost, or is being revoked."""
    assignment = an_assignment()
    assignment.partitions[SHALLOW].leave()
    foreign = Partition("t", 9)
    dropped: list[Record | PartitionEnd] = [
        Record(foreign, 0, None, b"x"),
        Record(SHALLOW, 0, None, b"x"),
        PartitionEnd(foreign, 1),
    ]
    assert assignment.admit(dropped) == (0, 0, [])
    assert assignment.admit([Record(DEEP, 0, b"k", b"xx"), PartitionEnd(DEEP, 1)]) == (1, 3, [])
    assert assignment.queued == 1


def test_the_position_passes_markers_at_the_end_of_a_partition() -> None:
    """It passes them in an empty partition too, but only after all requests before them are settled."""
    assignment = an_assignment(deep=1)
    deep, shallow = assignment.partitions[DEEP], assignment.partitions[SHALLOW]
    assignment.admit([PartitionEnd(DEEP, 3), PartitionEnd(SHALLOW, 5)])
    assert (deep.position, shallow.position) == (0, 5)
    deep.settle(0)
    assert deep.position == 3


def test_a_request_that_a_former_owner_has_answered_does_not_start_again() -> None:
    """The request is settled when it is fetched, and its size does not count as kept."""
    assignment = Assignment("unordered")
    assignment.assign({DEEP: 0}, {DEEP: CommitMetadata(completed=((1, 3),))})
    assert assignment.admit([Record(DEEP, offset, None, b"xx") for offset in range(4)]) == (4, 4, [])
    assert order(assignment, 9, 1) == [(0, 0), (0, 3)]
    assignment.partitions[DEEP].settle(0)
    assert assignment.partitions[DEEP].position == 3


# ---------------------------------------------------------------- full commit metadata


def test_a_partition_with_full_metadata_does_not_stop_the_others() -> None:
    """The full partition has tasks that are ready, but none of them may start before its lowest one has ended."""
    assignment = Assignment("unordered")
    assignment.assign(dict.fromkeys([DEEP, SHALLOW], 0))
    for partition in (DEEP, SHALLOW):
        assignment.admit([Record(partition, offset, None, b"xx") for offset in range(3)])
    full = assignment.partitions[DEEP]
    full.take(1, 0.0, below=math.inf)
    full.recorded(LIMIT)
    assignment.request_starts(ALONE, 0.0, in_flight=0)
    confirm(assignment)
    assert taken(assignment, ALONE) == [(1, 0)]
    assert full.room.full


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_with_full_metadata_only_the_lowest_task_may_be_answered_without_a_start(ordering: str) -> None:
    """The answer to the lowest task moves the position, which makes the metadata shorter."""
    assignment = Assignment(ordering)
    assignment.assign({DEEP: 0})
    assignment.admit([Record(DEEP, offset, None, b"xx") for offset in range(3)])
    full = assignment.partitions[DEEP]
    assert [full.has_room_for(offset) for offset in range(3)] == [True, True, True]
    full.recorded(LIMIT)
    assert [full.has_room_for(offset) for offset in range(3)] == [True, False, False]


# ---------------------------------------------------------------- committed


def test_an_offset_counts_as_committed_only_if_a_confirmed_commit_records_it() -> None:
    """Offsets that are answered meanwhile, or that do not fit into the metadata, are not committed."""
    left = CommitMetadata(completed=((12, 14), (20, 21)))
    owned = OwnedPartition(DEEP, start_offset=10, metadata=left, ordering="unordered")
    assert list(filter(owned.has_committed, range(8, 23))) == [8, 9, 12, 13, 20]
    for offset in range(10, 22):
        owned.admit(Record(DEEP, offset, None, b""))
    owned.settle(10, 16, 18)
    recorded = owned.metadata(clean=False)
    assert recorded.completed == ((12, 14), (16, 17), (18, 19), (20, 21))
    assert not owned.has_committed(10)
    owned.confirm((11, ""), 0, {}, dataclasses.replace(recorded, completed=recorded.completed[:2]))
    assert list(filter(owned.has_committed, range(9, 23))) == [9, 10, 12, 13, 16]
