"""Partitions take turns, so that a deep one does not starve the others; and what must be known before a start."""

from __future__ import annotations

import math

import pytest

from worker.core.assignment import Assignment
from worker.core.model import End, Partition, Record
from worker.core.notes import Doubt, Notes
from worker.core.starts import Starts

DEEP, SHALLOW, THIRD = (Partition("t", number) for number in range(3))
ALONE = Starts(1, 1, alone=True)


def an_assignment(**queued: int) -> Assignment:
    assignment = Assignment()
    assignment.assign(dict.fromkeys([DEEP, SHALLOW, THIRD]))
    for name, count in queued.items():
        partition = {"deep": DEEP, "shallow": SHALLOW, "third": THIRD}[name]
        assignment.admit([Record(partition, offset, None, b"xx") for offset in range(count)])
    return assignment


def confirm(assignment: Assignment) -> None:
    """What is asked for is committed."""
    for lane in assignment.lanes.values():
        lane.confirm((lane.position, ""), lane.wish)


def taken(assignment: Assignment, starts: Starts, handed: int = 0, now: float = 0.0) -> list[tuple[int, int]]:
    """Partition number and offset of what is taken."""
    return [(task.record.partition.number, task.record.offset) for task in assignment.take(starts, now, handed=handed)]


def order(assignment: Assignment, limit: int, times: int) -> list[tuple[int, int]]:
    """What is taken without waiting for permits."""
    return [place for _ in range(times) for place in taken(assignment, Starts(limit, 1, free=True))]


def wishes(assignment: Assignment) -> list[int]:
    return [lane.wish for lane in assignment.lanes.values()]


# ---------------------------------------------------------------- turns


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


def test_a_lot_of_one_lane_is_of_one_partition() -> None:
    """The partitions take turns, lot by lot."""
    assignment, starts = an_assignment(deep=9, shallow=9), Starts(4, 1, free=True, one_lane=True)
    assert {number for number, _ in taken(assignment, starts)} == {0}
    assert {number for number, _ in taken(assignment, starts)} == {1}


def test_who_waits_for_the_next_attempt_loses_no_turn_to_others() -> None:
    """The others go on, and the waiting one comes first in its partition when its time has come."""
    assignment, free = an_assignment(deep=2, shallow=2), Starts(4, 1, free=True)
    failed = assignment.take(Starts(1, 1, free=True), 0.0, handed=0)[0]
    failed.lane.put_back(failed, ready_at=10.0)
    assert order(assignment, 4, 2) == [(1, 0), (1, 1)]
    assert assignment.next_ready() == 10.0
    assert [task.record.offset for task in assignment.take(free, 10.0, handed=0)] == [0, 1]
    assert assignment.next_ready() == math.inf


def test_what_comes_next_is_shown_in_turns() -> None:
    """As it looks now; nothing is handed over by that."""
    assignment = an_assignment(deep=4, shallow=1)
    assert [(r.partition.number, r.offset) for r in assignment.peek(3)] == [(0, 0), (1, 0), (0, 1)]
    assert assignment.queued == 5


# ---------------------------------------------------------------- permits


def test_nothing_is_taken_without_a_permit() -> None:
    """What is asked for may start as soon as that is confirmed, and not what lies behind it."""
    assignment, starts = an_assignment(deep=9), Starts(2, 1)
    assert taken(assignment, starts) == []
    assignment.ask(starts, 0.0, handed=0)
    assert wishes(assignment) == [4, -1, -1]
    assert taken(assignment, starts) == []
    confirm(assignment)
    assert taken(assignment, Starts(9, 1)) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_what_starts_without_its_permit_asks_for_it_at_once() -> None:
    """So that it is noted, though not before."""
    assignment = an_assignment(deep=9)
    assert len(taken(assignment, Starts(3, 1, free=True))) == 3
    assert wishes(assignment) == [3, -1, -1]


def test_a_task_alone_is_asked_for_when_the_one_before_has_ended() -> None:
    """Else the notes would name two, and the wrong one might be blamed."""
    assignment = an_assignment(deep=3, shallow=3)
    assignment.ask(ALONE, 0.0, handed=1)
    assert wishes(assignment) == [-1, -1, -1]
    assignment.ask(ALONE, 0.0, handed=0)
    assert wishes(assignment) == [1, -1, -1]
    confirm(assignment)
    assert taken(assignment, ALONE, handed=1) == []
    assert taken(assignment, ALONE) == [(0, 0)]


@pytest.mark.parametrize("strict", [False, True])
def test_a_strict_one_waits_for_the_answer_to_the_one_before(strict: bool) -> None:
    """A task with a single attempt must not be blamed for another whose answer is on its way."""
    assignment, starts = an_assignment(deep=3), Starts(1, 1, alone=True, strict=strict)
    assignment.lanes[DEEP].unconfirmed = 1
    assignment.ask(starts, 0.0, handed=0)
    assert wishes(assignment)[0] == (-1 if strict else 1)


def test_what_a_process_may_have_died_of_starts_alone() -> None:
    """Until all that is doubtful is answered; the other lanes wait that long when it is its turn."""
    assignment, chunk = Assignment(), Starts(8, 1, free=True)
    assignment.assign({DEEP: 0, SHALLOW: 0}, {DEEP: Notes(working=2)})
    for partition in (DEEP, SHALLOW):
        assignment.admit([Record(partition, offset, None, b"xx") for offset in range(4)])
    lane = assignment.lanes[DEEP]
    assert lane.doubt == Doubt(2, 1)
    assert taken(assignment, chunk) == []
    assignment.ask(chunk, 0.0, handed=0)
    assert lane.wish == 1
    confirm(assignment)
    tasks = assignment.take(chunk, 0.0, handed=0)
    assert [(task.record.partition, task.record.offset, task.attempt) for task in tasks] == [(DEEP, 0, 1)]


def test_what_is_doubtful_is_not_asked_for_beside_others() -> None:
    """A permit for several would let the next start before it is noted that the one before was answered, and be blamed
    with it: seed 172 of the chaos suite, at least once.
    """
    assignment, chunk = Assignment(), Starts(8, 1)
    assignment.assign({DEEP: 0, SHALLOW: 0}, {SHALLOW: Notes(working=3)})
    for partition in (DEEP, SHALLOW):
        assignment.admit([Record(partition, offset, None, b"xx") for offset in range(4)])
    assignment.ask(chunk, 0.0, handed=0)
    assert wishes(assignment) == [4, -1]
    confirm(assignment)
    assert [number for number, _ in taken(assignment, chunk)] == [0] * 4
    assignment.ask(chunk, 0.0, handed=4)
    assert wishes(assignment) == [4, -1]
    assignment.ask(chunk, 0.0, handed=0)
    assert wishes(assignment) == [4, 1]


# ---------------------------------------------------------------- leases


def test_every_assignment_has_a_lease_of_its_own() -> None:
    """Also of a partition that we had before: what is left of the old one is let go."""
    assignment = an_assignment(deep=2)
    old = assignment.lanes[DEEP]
    (new,) = assignment.assign({DEEP: 7})
    assert new.lease > old.lease
    assert (old.open, new.open) == (False, True)
    assert (new.position, new.known) == (7, True)
    assert assignment.queued == 0


def test_records_that_are_not_ours_are_let_go() -> None:
    """The client may still hand out some of a partition that it has just given up, or that is about to go."""
    assignment = an_assignment()
    assignment.lanes[SHALLOW].leave()
    foreign = Partition("t", 9)
    assert assignment.admit([Record(foreign, 0, None, b"x"), Record(SHALLOW, 0, None, b"x"), End(foreign, 1)]) == (0, 0)
    assert assignment.admit([Record(DEEP, 0, b"k", b"xx"), End(DEEP, 1)]) == (1, 3)
    assert assignment.queued == 1


def test_markers_at_the_end_of_a_partition_are_passed() -> None:
    """Also where there is nothing else; but not before what lies in front of them is answered."""
    assignment = an_assignment(deep=1)
    deep, shallow = assignment.lanes[DEEP], assignment.lanes[SHALLOW]
    assignment.admit([End(DEEP, 3), End(SHALLOW, 5)])
    assert (deep.position, shallow.position) == (0, 5)
    deep.settle(0)
    assert deep.position == 3


def test_what_a_former_owner_has_answered_is_not_done_again() -> None:
    """It is settled as it comes, and counts as nothing that is kept."""
    assignment = Assignment("unordered")
    assignment.assign({DEEP: 0}, {DEEP: Notes(done=((1, 3),))})
    assert assignment.admit([Record(DEEP, offset, None, b"xx") for offset in range(4)]) == (4, 4)
    assert order(assignment, 9, 1) == [(0, 0), (0, 3)]
    assignment.lanes[DEEP].settle(0)
    assert assignment.lanes[DEEP].position == 3
