"""Partitions that are revoked while tasks run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.scene import CANCEL_GRACE, scene
from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import ACKS, World
from worker.core.commits import HOLD_KEEP_ALIVE
from worker.core.lifecycle import State
from worker.errors import ExitCode
from worker.process.status_block import Command

if TYPE_CHECKING:
    from worker.core.model import Task


def test_a_revoked_partition_is_held_until_its_running_task_is_settled(world: World) -> None:
    """The task is answered and committed before the release. The new owner begins behind it, so no task runs twice."""
    at = scene(world, Work(seconds=100.0))
    world.run(10)
    world.move(0, at.rival)
    world.run(80)
    assert at.rival.owned == set()
    at.move_away()
    assert at.process.service.cancelled == []
    assert (world.answered(), world.committed()) == ([(0, 0)], 1)
    world.until(lambda: len(at.offsets_of_rival()) == 2)
    assert at.offsets_of_rival() == [1, 2]
    assert at.process.starts == [(0, 0, 1)]


def test_a_revoked_partition_does_not_wait_for_tasks_that_have_not_started(world: World) -> None:
    """This includes tasks that are already dispatched: the process withdraws them."""
    world.quick()
    at = scene(world, Work(seconds=0.001))
    world.until(lambda: world.committed() == 33)
    for _ in range(3):
        world.request("long", work=Work(seconds=5.0))
    world.until(lambda: at.process.loop._dispatcher.in_flight == 3)
    world.run(1)
    world.move(0, at.rival)
    at.move_away()
    world.run(100)
    assert at.process.starts[33:] == [(0, 33, 1)]
    assert at.offsets_of_rival() == [34, 35]


@pytest.mark.parametrize("others", [None, Work(seconds=5.0)])
def test_a_revoked_partition_without_a_running_task_is_released_at_once(world: World, others: Work | None) -> None:
    """This holds also if its next task is already dispatched, behind a long task of another partition."""
    at = scene(world, Work(seconds=5.0), others=others)
    world.until(lambda: len(at.process.starts) == 2)
    at.world.script["task"] = Work(seconds=100.0)
    world.until(lambda: at.process.starts[-1] == (0, 2 if others is None else 1, 1))
    world.run(2)
    started = world.clock()
    world.move(1, at.rival)
    at.move_away(1)
    assert world.clock() - started < 2
    assert at.process.owned == [0]


def test_answers_of_other_partitions_are_settled_while_one_is_held(world: World) -> None:
    """The process commits confirmed answers during the hold."""
    world.broker.topics[ACKS].delay = 5.0
    at = scene(world, Work(seconds=60.0), others=Work(seconds=60.0))
    at.world.script["task"] = at.world.script["other"] = Work(seconds=50.0)
    world.until(lambda: (1, 0, 1) in at.process.starts and at.process.starts[-1][0] == 0)
    assert world.committed(1) is None
    world.move(0, at.rival)
    world.run(20)
    assert at.rival.owned == set()
    assert world.committed(1) == 1


def test_tasks_of_other_partitions_start_while_a_held_answer_is_not_confirmed(world: World) -> None:
    """The executor is free then, and runs the queued tasks."""
    at = scene(world, Work(seconds=1.0), others=Work(seconds=4.0))
    at.world.script["task"] = Work(seconds=4.0)
    world.until(lambda: (0, 2, 1) in at.process.starts)
    for _ in range(3):
        world.request("other", 1)
    world.broker.topics[ACKS].delay = 60.0
    world.until(lambda: at.process.starts[-1][0] == 1 and (0, 2, 1) in at.process.starts)
    world.run(0.5)
    before = len(at.process.starts)
    world.move(0, at.rival)
    world.run(30)
    assert at.rival.owned == set()
    assert len(at.process.starts) > before


def test_a_held_partition_is_not_released_before_the_answer_is_confirmed(world: World) -> None:
    world.broker.topics[ACKS].delay = 30.0
    at = scene(world, Work(seconds=10.0))
    world.move(0, at.rival)
    world.run(35)
    assert at.rival.owned == set()
    at.move_away()
    assert world.committed() == 1


def test_a_task_that_exceeds_the_hold_is_cancelled_and_given_up(world: World) -> None:
    """There is no answer and no commit. The new owner runs the task again."""
    at = scene(world, Work(seconds=5_000.0, obeys=2.0), hold=60.0)
    started = world.clock()
    world.move(0, at.rival)
    at.move_away()
    assert 62 <= world.clock() - started < 64
    assert [reason for _, reason in at.process.service.cancelled] == ["revoked"]
    assert (world.answers(), world.committed()) == ([], None)
    world.until(lambda: at.rival.records)
    assert at.offsets_of_rival()[0] == 0
    assert at.process.exit_code is None


def test_a_task_that_ignores_its_cancellation_does_not_keep_the_partition(world: World) -> None:
    """Its result is dropped, because its lease has ended. The process continues as long as no other task waits."""
    at = scene(world, Work(seconds=500.0, obeys=None), hold=60.0)
    started = world.clock()
    world.move(0, at.rival)
    at.move_away()
    assert 60 + CANCEL_GRACE <= world.clock() - started < 62 + CANCEL_GRACE
    world.run(600)
    assert (world.answers(), world.committed()) == ([], None)
    assert at.process.counter("dropped_total") == 1
    world.request("other", 1)
    world.until(lambda: world.committed(1) == 1)
    assert at.process.exit_code is None


def test_a_task_that_outlives_its_hold_does_not_block_other_work(world: World) -> None:
    """Its process is replaced, so short tasks of the other partition do not wait for a task of hours (B4)."""
    at = scene(world, Work(seconds=7_000.0, obeys=None), hold=60.0)
    world.move(0, at.rival)
    at.move_away()
    for _ in range(5):
        world.request("other", 1, work=Work(seconds=0.01))
    world.until(lambda: at.process.exit_code is not None, seconds=CANCEL_GRACE + 2)
    assert at.process.exit_code is ExitCode.DRAINED
    world.until(lambda: 1 in at.rival.owned, seconds=2)
    assert at.process.service.running is not None
    assert not at.process.service.stopped  # the tear-down hook does not run while the handler runs


def test_a_task_that_outlives_its_hold_does_not_block_dispatched_tasks(world: World) -> None:
    """After short tasks, the executor gets several requests at a time, of both partitions."""
    process = world.process(hold=60.0)
    world.until(lambda: process.owned == [0, 1])
    for number in (0, 1):
        world.move(number, process)
    rival = world.rival()
    world.quick()
    world.until(lambda: len(world.answered()) == 30)
    world.request("stuck", 1, work=Work(seconds=7_000.0, obeys=None))
    world.request("other", 0, work=Work(seconds=0.01))
    world.until(lambda: len(process.starts) == 31)
    world.move(1, rival)
    world.until(lambda: process.exit_code is not None, seconds=62 + 2 * CANCEL_GRACE)
    world.until(lambda: 0 in rival.owned, seconds=2)


def test_the_supervisor_sees_that_a_process_has_left_though_a_task_still_runs(world: World) -> None:
    """Otherwise it would take the end of the process for a crash by that task."""
    at = scene(world, Work(seconds=7_000.0, obeys=None), hold=60.0, others=Work(seconds=0.01))
    world.move(0, at.rival)
    world.until(lambda: at.process.exit_code is not None)
    assert at.process.status.read_stamp().state == State.CLOSED


def test_a_process_keeps_polling_during_a_hold(world: World) -> None:
    """So it gets the replies to commits of other partitions, and the group keeps the member."""
    at = scene(world, Work(seconds=300.0), max_poll_interval=500.0)
    world.move(0, at.rival)
    world.run(200)
    assert world.clock() - at.process.consumer._polled_at < 1
    at.move_away()
    assert world.committed() == 1


def test_a_task_that_fails_during_a_hold_is_left_to_the_next_owner(world: World) -> None:
    """The next owner makes the next attempt, so the partition is released at once."""
    at = scene(world, failing(seconds=20.0, retry_after=0.0))
    world.move(0, at.rival)
    at.move_away()
    assert at.process.starts == [(0, 0, 1)]
    assert (world.answers(), world.committed()) == ([], None)


def test_a_partition_is_not_held_for_a_task_that_waits_for_its_next_attempt(world: World) -> None:
    at = scene(world, failing(retry_after=5_000.0))
    world.run(5)
    started = world.clock()
    world.move(0, at.rival)
    at.move_away()
    assert world.clock() - started < 2


@pytest.mark.parametrize("obeys", [1.0, None])
def test_a_cancellation_ends_a_hold(world: World, obeys: float | None) -> None:
    """A second signal waits neither for a hold of a day nor for a task that ignores its cancellation."""
    at = scene(world, Work(seconds=50_000.0, obeys=obeys), hold=86_400.0)
    world.move(0, at.rival)
    world.run(100)
    started = world.clock()
    at.process.order(Command.CANCEL)
    world.until(lambda: at.process.exit_code is not None)
    assert world.clock() - started < CANCEL_GRACE + 2
    assert at.process.exit_code is ExitCode.DRAIN_TIMED_OUT


def test_a_drain_during_a_hold_waits_for_the_held_task(world: World) -> None:
    at = scene(world, Work(seconds=100.0))
    world.move(0, at.rival)
    world.run(10)
    assert world.leave(at.process) == [ExitCode.DRAINED]
    assert (world.answered(), world.committed()) == ([(0, 0)], 1)


def test_the_watchdog_sees_loop_turns_during_a_hold(world: World) -> None:
    """The process writes its stamp during a hold, too. Otherwise it would be killed as stuck."""
    at = scene(world, Work(seconds=1_000.0), hold=5_000.0)
    world.move(0, at.rival)
    world.run(10)
    turns = at.process.status.read_stamp().turns
    world.run(60)
    assert at.process.status.read_stamp().turns > turns + 60


def test_a_hold_rarely_commits_the_same_offsets_again(world: World) -> None:
    """It commits them only from time to time: the reply tells whether the group still knows the member."""
    world.broker.commit_delay = 0.5
    at = scene(world, Work(seconds=2.0))
    world.until(lambda: len(world.answers()) == 1)
    at.world.script["task"] = Work(seconds=60.0)
    world.until(lambda: len(at.process.starts) == 3)
    world.run(0.1)
    world.move(0, at.rival)
    before = len(world.broker.group("group").commits)
    started = world.clock()
    at.move_away()
    repeated = (world.clock() - started) // HOLD_KEEP_ALIVE
    assert len(world.broker.group("group").commits) - before <= 3 + 2 * repeated


def test_a_commit_under_way_is_sent_again_before_a_revoked_partition_is_released(world: World) -> None:
    """The commit fails. After the release the process could not learn this and could not repeat the commit."""
    at = scene(world, Work(seconds=1.0))
    world.until(lambda: world.committed() == 3)
    world.broker.commit_delay = 1.0
    world.broker.fail_commits("NOT_COORDINATOR")
    world.request("task")
    world.until(lambda: len(world.answers()) == 4)
    world.run(0.1)  # the answer is known and the commit is sent
    world.move(0, at.rival)
    at.move_away()
    world.run(10)
    assert at.rival.records == []
    assert world.committed() == 4


@pytest.mark.parametrize("reason", ["drain", "revoked"])
def test_a_cancellation_that_comes_too_early_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """The executor's thread may be about to call the handler when the first cancellation comes (B6)."""
    at = scene(world, Work(seconds=1_000.0), hold=10.0)
    cancel, missed = at.process.service.cancel, False

    def miss_the_first(*arguments: Any) -> list[Task]:
        nonlocal missed
        if missed:
            return cancel(*arguments)
        missed = True
        return []

    monkeypatch.setattr(at.process.service, "cancel", miss_the_first)
    if reason == "drain":
        at.process.order(Command.CANCEL)
    else:
        world.move(0, at.rival)
        world.run(10)
    world.until(lambda: at.process.service.cancelled, 2.0)
    assert [why for _, why in at.process.service.cancelled] == [reason]
