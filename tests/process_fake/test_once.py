"""Guarantee at-most-once: what was started once is never started again, whatever became of it."""

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


def test_a_task_is_committed_before_it_starts(world: World) -> None:
    """The group stands behind it then, and what is noted says that it has no answer yet."""
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


def test_short_tasks_are_committed_before_they_start_too(world: World) -> None:
    """However idle the process is: there is no start without a note here."""
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
    """That commit records starts that do not happen any more. The next owner would report the requests as lost."""
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
    """Dead letter and answer at once, and the next one starts."""
    world.request("bad", work=failing())
    world.request()
    process = a_process(world)
    world.until(lambda: len(world.answers()) == 2)
    assert process.starts == [(0, 0, 1), (0, 1, 1)]
    assert [(answer.outcome, answer.attempt) for answer in world.answers()] == [(DEAD_LETTERED, 1), (OK, 1)]
    assert len(world.dead_letters()) == 1


def test_a_task_that_is_given_up_has_its_answer(world: World) -> None:
    """Nobody else will do it: the answer says that it was cancelled, and why."""
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


def test_a_drain_loses_nothing(world: World) -> None:
    """What runs is answered; what has a start_limit and was not started is the next process's."""
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
def test_what_was_started_is_not_started_again_after_a_death(world: World, ordering: str) -> None:
    """Counted and told as lost; what comes behind it is done."""
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


def test_losses_are_told_once(world: World, lines: list[Any]) -> None:
    """By the first process that finds them noted."""
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


def test_a_lost_partition_does_not_cost_the_answer(world: World) -> None:
    """Nobody else will answer it, whoever has the partition now."""
    world.request("long", work=Work(seconds=100.0, obeys=None))
    process = a_process(world)
    world.until(lambda: process.starts)
    world.broker.group(GROUP).leave(process.consumer)
    world.until(world.answers)
    world.run(200)
    assert process.starts == [(0, 0, 1)]
    assert len(world.answers()) == 1


def test_nothing_is_started_twice_whatever_is_killed(world: World) -> None:
    """A row of deaths at any moment: every request is answered once or lost, and what was lost is counted."""
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
