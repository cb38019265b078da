"""Which starts count as attempts: only those that ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import REQUESTS, World
from worker.codec import DEAD_LETTERED, OK
from worker.errors import ExitCode
from worker.process.crash_reports import CrashReport
from worker.process.status_block import Command

if TYPE_CHECKING:
    from tests.process_fake.world import Process


def test_a_crash_does_not_count_against_a_task_that_waits_for_its_next_attempt(world: World) -> None:
    """The task failed twice and waits for its last attempt. A task of another partition kills the process."""
    world.request("flaky", 0, work=[failing(1.0), failing(1.0), Work(1.0)])
    process = world.process(retry_first=6.0, retry_greatest=300.0)
    world.until(lambda: process.starts.count((0, 0, 2)))
    world.run(2)
    world.request("deadly", 1, work=[Work(seconds=1e9), Work(1.0)])
    world.until(lambda: (1, 0, 1) in process.starts, seconds=5)
    world.run(1)
    world.crash(process)
    successor = world.process()
    world.until(lambda: world.committed(0) == 1)
    assert (0, 0, 3) in successor.starts, "the last attempt was made"
    assert [answer.outcome for answer in world.answers() if answer.origin.partition == 0] == [OK]


def test_a_crash_counts_as_an_attempt_of_a_task_that_has_started_again(world: World) -> None:
    """The commit that records the start also records that the task no longer waits."""
    world.request("flaky", 0, work=[failing(1.0), Work(seconds=1e9), Work(1.0)])
    process = world.process(retry_first=6.0)
    world.until(lambda: (0, 0, 2) in process.starts)
    world.run(1)
    assert world.noted().waiting == frozenset()
    world.crash(process)
    successor = world.process()
    world.until(lambda: world.committed(0) == 1)
    assert successor.starts == [(0, 0, 3)]


def test_a_drain_uses_up_no_attempt_of_a_task_that_ignores_its_cancellation(world: World) -> None:
    """The process gives up the task, and commits that no task is running before it leaves."""
    world.request("deaf", work=Work(seconds=1e9, obeys=None))
    for _ in range(4):
        process = world.process()
        world.run(5)
        assert process.starts == [(0, 0, 1)]
        process.order(Command.CANCEL)
        world.run(10)
        assert process.exit_code is ExitCode.DRAIN_TIMED_OUT
    assert world.noted().started_below is None
    assert world.answers() == []


def test_after_a_crash_among_short_tasks_each_start_is_counted_once(world: World) -> None:
    """The supervisor tells the other processes of the replica which task the dead process was running."""
    world.quick()
    for offset in range(30, 50):
        deadly = offset == 40
        world.request("deadly" if deadly else "quick", work=Work(seconds=1e9 if deadly else 0.001))
    reports: list[CrashReport] = []
    attempts = set()
    for attempt in (1, 2, 3):
        process = world.process()
        process.status.report_crashes(reports)
        world.until(lambda: (0, 40, attempt) in process.starts)  # noqa: B023 - used at once
        attempts |= {(offset, n) for _, offset, n in process.starts}
        reports = [CrashReport(process.token, REQUESTS, 0, 40, attempt)]
        world.crash(process)
    process = world.process()
    process.status.report_crashes(reports)
    world.until(lambda: world.committed() == 50)
    attempts |= {(offset, n) for _, offset, n in process.starts}
    assert sorted(n for offset, n in attempts if offset == 40) == [1, 2, 3]
    assert {n for offset, n in attempts if offset != 40} == {1}
    assert [answer.origin.offset for answer in world.answers() if answer.outcome != OK] == [40]


def test_a_dead_letter_after_a_crash_names_the_error_of_the_attempt_before(world: World) -> None:
    """The process that saw the error is dead. The next one reads the error from the commit metadata."""
    world.request("flaky", 0, work=[failing(1.0), failing(1.0), Work(seconds=1e9)])
    process = world.process(retry_first=6.0)
    world.until(lambda: (0, 0, 3) in process.starts)
    world.run(1)
    world.crash(process)
    world.process()
    world.until(lambda: world.committed(0) == 1)
    (answer,) = world.answers()
    assert answer.error.type == "ProcessDied"
    assert "an earlier attempt ended with ScriptedError" in answer.error.message


def dead_process(world: World) -> Process:
    """Return a process that has died while it ran the only task, offset 0 of partition 0."""
    world.request("first", work=Work(seconds=1e9))
    process = world.process()
    world.until(lambda: process.starts)
    world.run(1)
    world.crash(process)
    return process


def first_start(world: World, report: CrashReport) -> tuple[int, int, int]:
    """Return the first start of a process that knows this report: partition, offset and attempt."""
    process = world.process()
    process.status.report_crashes([report])
    world.until(lambda: process.starts)
    return process.starts[0]


def test_a_crash_by_a_task_of_another_partition_uses_up_no_attempt(world: World) -> None:
    """The starts of the next tasks of this partition were already recorded."""
    token = dead_process(world).token
    assert first_start(world, CrashReport(token, REQUESTS, 1, 5, 1)) == (0, 0, 1)


@pytest.mark.parametrize(("partition", "offset"), [(0, 0), (0, 7), (1, 5)])
def test_a_crash_report_about_an_earlier_owner_has_no_effect(world: World, partition: int, offset: int) -> None:
    """The last owner may have died in another replica. Fault suite, seed 172: a request had one start too many."""
    dead_process(world)
    assert first_start(world, CrashReport("00000000", REQUESTS, partition, offset, 1)) == (0, 0, 2)


def test_a_crash_counts_although_the_next_owner_dies_before_it_commits_the_count(world: World) -> None:
    """The next owner dies while it runs a task of another partition. It has started nothing in this one."""
    dead_process(world)
    successor = world.process(started=False)
    world.until(lambda: 0 in successor.owned)
    world.crash(successor)
    assert first_start(world, CrashReport(successor.token, REQUESTS, 1, 5, 1)) == (0, 0, 2)


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_every_start_below_the_task_of_a_known_crash_is_counted(world: World, ordering: str) -> None:
    """The next owners start tasks and die before they fetch the task of the first crash again."""
    kill = Work(seconds=1e9)
    world.request("deadly", work=[failing(0.01, retry_after=500.0), kill, kill], key=b"a")
    world.request("flaky", work=[failing(0.01, retry_after=500.0), Work(0.01)], key=b"b")
    for _ in range(20):
        world.request("quick", work=Work(0.01), key=b"c")
    world.request("long", work=Work(seconds=30.0), key=b"d")
    process = world.process(ordering=ordering)
    world.until(lambda: (0, 22, 1) in process.starts)
    world.run(2)
    world.crash(process)
    reports = [CrashReport(process.token, REQUESTS, 0, 22, 1)]
    for attempt in (2, 3):
        process = world.process(ordering=ordering)
        process.status.report_crashes(reports)
        world.until(lambda: (0, 0, attempt) in process.starts)  # noqa: B023 - used at once
        reports.append(CrashReport(process.token, REQUESTS, 0, 0, attempt))
        world.crash(process)
    world.process(ordering=ordering).status.report_crashes(reports)
    world.until(lambda: world.committed() == 23)
    found = {answer.origin.offset: (answer.outcome, answer.attempt) for answer in world.answers()}
    assert (found[0], found[22]) == ((DEAD_LETTERED, 3), (OK, 2))
