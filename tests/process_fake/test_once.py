"""Guarantee at-most-once: a request that has started never starts again, whatever happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import GROUP, World
from worker.codec import CANCELLED, DEAD_LETTERED, OK
from worker.errors import ExitCode
from worker.process.status_block import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.process_fake.world import Process
    from worker.core.model import Partition
    from worker.kafka.ports import Position


def a_process(world: World, **options: Any) -> Process:
    return world.process(guarantee="at-most-once", **options)


def kill(world: World, process: Process) -> None:
    world.crash(process)


def offsets(process: Process) -> list[int]:
    return [offset for _, offset, _ in process.starts]


def test_the_offset_after_a_task_is_committed_before_the_task_starts(world: World) -> None:
    """The committed offset is above the request by then, and the metadata say that it has no answer."""
    world.broker.commit_delay = 3.0
    world.request("long", work=Work(seconds=20.0))
    process = a_process(world)
    world.run(2.9)
    assert (process.starts, world.committed()) == ([], None)
    world.until(lambda: process.starts)
    assert (world.committed(), world.noted().unanswered_from) == (1, 0)
    world.until(world.answers)
    world.run(10)
    assert (world.committed(), world.noted().unanswered_from) == (1, None)
    assert [answer.outcome for answer in world.answers()] == [OK]


def test_the_offset_after_a_short_task_is_committed_before_the_task_starts_too(world: World) -> None:
    """This holds for an idle process, too. Under at-most-once every start is recorded before it happens."""
    world.quick()
    process = a_process(world)
    world.until(lambda: len(world.answers()) == 30)
    world.broker.commit_delay = 3.0
    world.run(10)
    world.request("quick")
    since = world.clock()
    world.until(lambda: len(process.starts) == 31)
    assert world.clock() - since >= 3.0


def test_a_revoked_partition_waits_for_the_commit_that_is_under_way(world: World) -> None:
    """The commit records starts that will not happen. Without the wait the next owner reports the requests as lost."""
    world.quick()
    world.quick(1)
    process = a_process(world)
    world.until(lambda: len(world.answers()) == 60)
    world.run(1)
    world.move(0, process)
    world.move(1, process)
    other = a_process(world)
    world.run(2)
    world.request("long", 1, work=Work(seconds=0.9))
    world.until(lambda: (1, 30, 1) in process.starts)
    world.run(0.2)
    commit = process.consumer.commit

    def revoke_meanwhile(positions: Mapping[Partition, Position]) -> None:
        commit(positions)
        process.consumer.commit = commit  # type: ignore[method-assign]
        world.move(0, other)

    process.consumer.commit = revoke_meanwhile  # type: ignore[method-assign]
    world.quick(count=4)
    world.until(lambda: 0 in other.owned)
    world.run(5)
    assert other.counter("lost_total") == 0
    assert offsets(other) == [30, 31, 32, 33]
    assert len(world.answers()) == 65


def test_a_failed_attempt_is_the_last(world: World) -> None:
    """The dead letter and the answer follow at once, and the next request starts."""
    world.request("bad", work=failing())
    world.request()
    process = a_process(world)
    world.until(lambda: len(world.answers()) == 2)
    assert process.starts == [(0, 0, 1), (0, 1, 1)]
    assert [(answer.outcome, answer.attempt) for answer in world.answers()] == [(DEAD_LETTERED, 1), (OK, 1)]
    assert len(world.dead_letters()) == 1


def test_a_task_that_is_given_up_is_answered_as_cancelled(world: World) -> None:
    """No other process will run it. The answer says that it was cancelled, and why."""
    world.request("long", work=Work(seconds=5_000.0, obeys=1.0))
    world.request("behind")
    process = a_process(world)
    world.until(lambda: process.starts)
    process.order(Command.CANCEL)
    world.until(lambda: process.exit_code is not None)
    assert process.exit_code is ExitCode.DRAIN_TIMED_OUT
    (answer,) = world.answers()
    assert (answer.outcome, answer.isprocessed, answer.error.type) == (CANCELLED, False, "Cancelled")
    assert process.counter("tasks_total", "CANCELLED") == 1
    successor = a_process(world)
    world.until(lambda: len(world.answers()) == 2)
    assert offsets(successor) == [1]
    assert successor.counter("lost_total") == 0


def test_a_drain_loses_no_request(world: World) -> None:
    """The running task is answered. The next process runs the tasks below the start limit that have not started."""
    for number in (0, 1):
        world.quick(number)
    process = a_process(world)
    world.until(lambda: len(world.answers()) == 60)
    for number in (0, 1) * 5:
        world.request("long", number, work=Work(seconds=5.0))
    world.until(lambda: len(process.starts) > 60)
    assert world.leave(process) == [ExitCode.DRAINED]
    successor = a_process(world)
    world.until(lambda: len(world.answers()) == 70)
    assert len(process.starts) + len(successor.starts) == 70
    assert successor.counter("lost_total") == 0


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_a_task_that_has_started_does_not_start_again_after_a_crash(world: World, ordering: str) -> None:
    """The task is counted and reported as lost. The requests behind it are answered."""
    for offset in range(3):
        world.request(f"{offset}", work=Work(seconds=2.0 if offset != 1 else 1_000.0))
    process = a_process(world, ordering=ordering)
    world.until(lambda: offsets(process) == [0, 1])
    world.run(10)
    kill(world, process)
    successor = a_process(world, ordering=ordering)
    world.until(lambda: len(world.answers()) == 2)
    world.run(10)
    assert offsets(successor) == [2]
    assert world.answered() == [(0, 0), (0, 2)]
    assert successor.counter("lost_total") == 1
    assert (world.committed(), world.noted().unanswered_from) == (3, None)


def test_a_lost_request_is_logged_once(world: World, lines: list[Any]) -> None:
    """The first process that finds the request in the commit metadata logs it."""
    world.request("long", work=Work(seconds=1_000.0))
    process = a_process(world)
    world.until(lambda: process.starts)
    kill(world, process)
    for _ in range(2):
        successor = a_process(world)
        world.run(10)
        world.leave(successor)
    reported = [line for line in lines if line["event"] == "tasks.lost"]
    assert [line["offsets"] for line in reported] == [["0-0"]]


def test_a_task_of_a_lost_partition_is_still_answered(world: World) -> None:
    """No other process will answer the request, not even the new owner of the partition."""
    world.request("long", work=Work(seconds=100.0, obeys=None))
    process = a_process(world)
    world.until(lambda: process.starts)
    world.broker.group(GROUP).leave(process.consumer)
    world.until(world.answers)
    world.run(200)
    assert process.starts == [(0, 0, 1)]
    assert len(world.answers()) == 1


def test_no_request_starts_twice_although_processes_are_killed(world: World) -> None:
    """Twelve processes are killed at different moments. Each request is answered once, or counted as lost."""
    for offset in range(200):
        world.request(f"{offset % 7}", work=Work(seconds=(0.001, 0.05, 0.3, 1.5, 0.0, 0.01, 2.5)[offset % 7]))
    processes = []
    for step in range(12):
        processes.append(a_process(world))
        world.run(1.0 + 0.37 * step)
        kill(world, processes[-1])
    processes.append(a_process(world))
    world.until(lambda: world.committed() == 200 and world.noted().unanswered_from is None)
    world.run(5)
    starts = [offset for process in processes for offset in offsets(process)]
    assert len(starts) == len(set(starts))
    answered = [offset for _, offset in world.answered()]
    assert len(answered) == len(set(answered))
    lost = sum(process.counter("lost_total") for process in processes)
    assert lost >= 200 - len(answered)
