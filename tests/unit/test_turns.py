"""Partitions take turns, so that a deep one does not starve the others."""

from __future__ import annotations

import math

from worker.core.assignment import Assignment
from worker.core.model import Partition, Record

DEEP, SHALLOW, THIRD = (Partition("t", number) for number in range(3))


def an_assignment(**queued: int) -> Assignment:
    assignment = Assignment()
    assignment.assign([DEEP, SHALLOW, THIRD])
    for name, count in queued.items():
        partition = {"deep": DEEP, "shallow": SHALLOW, "third": THIRD}[name]
        assignment.admit([Record(partition, offset, None, b"xx") for offset in range(count)])
    return assignment


def order(assignment: Assignment, limit: int, times: int) -> list[tuple[int, int]]:
    """Partition number and offset of what is taken."""
    return [
        (task.record.partition.number, task.record.offset) for _ in range(times) for task in assignment.take(limit, 0.0)
    ]


def test_one_at_a_time_they_take_turns() -> None:
    assert order(an_assignment(deep=3, shallow=2, third=1), 1, 9) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 2)]


def test_a_chunk_is_shared_evenly() -> None:
    """And in the order of turns when it has fewer places than there are lanes."""
    assert order(an_assignment(deep=9, shallow=9), 4, 1) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assignment = an_assignment(deep=9, shallow=9, third=9)
    assert order(assignment, 2, 1) == [(0, 0), (1, 0)]
    assert order(assignment, 2, 1) == [(2, 0), (0, 1)]


def test_a_lane_that_is_alone_has_the_whole_chunk() -> None:
    assert len(order(an_assignment(deep=9), 6, 1)) == 6


def test_who_waits_for_the_next_attempt_loses_no_turn_to_others() -> None:
    """The others go on, and the waiting one comes first in its partition when its time has come."""
    assignment = an_assignment(deep=2, shallow=2)
    failed = assignment.take(1, 0.0)[0]
    failed.lane.stalled = True
    failed.lane.put_back(failed, ready_at=10.0)
    assert order(assignment, 4, 2) == [(1, 0), (1, 1)]
    assert assignment.next_ready() == 10.0
    assert [task.record.offset for task in assignment.take(4, 10.0)] == [0, 1]
    assert assignment.next_ready() == math.inf


def test_every_assignment_has_a_lease_of_its_own() -> None:
    """Also of a partition that we had before: what is left of the old one is let go."""
    assignment = an_assignment(deep=2)
    old = assignment.lanes[DEEP]
    (new,) = assignment.assign([DEEP])
    assert new.lease > old.lease
    assert (old.open, new.open) == (False, True)
    assert assignment.queued == 0


def test_records_that_are_not_ours_are_let_go() -> None:
    """The client may still hand out some of a partition that it has just given up, or that is about to go."""
    assignment = an_assignment()
    assignment.lanes[SHALLOW].leave()
    assert assignment.admit([Record(Partition("t", 9), 0, None, b"x"), Record(SHALLOW, 0, None, b"x")]) == 0
    assert assignment.admit([Record(DEEP, 0, b"k", b"xx")]) == 3
    assert assignment.queued == 1
