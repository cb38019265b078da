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
    """Answered, committed, and then released: the new owner begins right behind it, and nothing is done twice."""
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


def test_what_has_not_started_is_not_waited_for(world: World) -> None:
    """Also when it was handed to the service already: it is taken back."""
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
def test_nothing_is_waited_for_where_nothing_runs(world: World, others: Work | None) -> None:
    """Also not where the next task of the partition is with the service already, behind a long one of another."""
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
    """Nothing is polled meanwhile, but what is confirmed is committed."""
    world.broker.topics[ACKS].delay = 5.0
    at = scene(world, Work(seconds=60.0), others=Work(seconds=60.0))
    at.world.script["task"] = at.world.script["other"] = Work(seconds=50.0)
    world.until(lambda: (1, 0, 1) in at.process.starts and at.process.starts[-1][0] == 0)
    assert world.committed(1) is None
    world.move(0, at.rival)
    world.run(20)
    assert at.rival.owned == set()
    assert world.committed(1) == 1


def test_tasks_of_other_partitions_start_while_one_waits_for_its_confirmation(world: World) -> None:
    """The slot is free then, and what is queued for it is used."""
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


def test_the_answer_of_the_held_task_must_be_confirmed_first(world: World) -> None:
    world.broker.topics[ACKS].delay = 30.0
    at = scene(world, Work(seconds=10.0))
    world.move(0, at.rival)
    world.run(35)
    assert at.rival.owned == set()
    at.move_away()
    assert world.committed() == 1


def test_beyond_the_limit_the_task_is_cancelled_and_given_up(world: World) -> None:
    """No answer, no commit: the new owner does it again."""
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
    """Its result is dropped, because its lease is over. As long as nothing else waits, the process lives on."""
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
    """Its process is replaced: the other partition's tasks of a second do not wait for the task of hours (B4)."""
    at = scene(world, Work(seconds=7_000.0, obeys=None), hold=60.0)
    world.move(0, at.rival)
    at.move_away()
    for _ in range(5):
        world.request("other", 1, work=Work(seconds=0.01))
    world.until(lambda: at.process.exit_code is not None, seconds=CANCEL_GRACE + 2)
    assert at.process.exit_code is ExitCode.DRAINED
    world.until(lambda: 1 in at.rival.owned, seconds=2)
    assert at.process.service.running is not None
    assert not at.process.service.stopped  # the tear-down hook does not run beside the handler


def test_a_task_that_outlives_its_hold_does_not_block_what_the_executor_has(world: World) -> None:
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
    """So it does not take the end of the process for a crash of that task."""
    at = scene(world, Work(seconds=7_000.0, obeys=None), hold=60.0, others=Work(seconds=0.01))
    world.move(0, at.rival)
    world.until(lambda: at.process.exit_code is not None)
    assert at.process.status.read_stamp().state == State.CLOSED


def test_a_hold_polls_on(world: World) -> None:
    """Commits of other partitions are answered meanwhile, and the group does not miss the member."""
    at = scene(world, Work(seconds=300.0), max_poll_interval=500.0)
    world.move(0, at.rival)
    world.run(200)
    assert world.clock() - at.process.consumer._polled_at < 1
    at.move_away()
    assert world.committed() == 1


def test_a_task_that_fails_while_it_is_held_is_the_next_owners(world: World) -> None:
    """Its next attempt is made there; the partition is released at once."""
    at = scene(world, failing(seconds=20.0, retry_after=0.0))
    world.move(0, at.rival)
    at.move_away()
    assert at.process.starts == [(0, 0, 1)]
    assert (world.answers(), world.committed()) == ([], None)


def test_a_task_that_waits_for_its_next_attempt_is_not_held(world: World) -> None:
    at = scene(world, failing(retry_after=5_000.0))
    world.run(5)
    started = world.clock()
    world.move(0, at.rival)
    at.move_away()
    assert world.clock() - started < 2


@pytest.mark.parametrize("obeys", [1.0, None])
def test_a_cancellation_ends_a_hold(world: World, obeys: float | None) -> None:
    """A second signal does not wait for the hold of a day, nor for a task that does not obey."""
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


def test_the_watchdog_sees_a_process_that_holds_turn(world: World) -> None:
    """It is stamped inside the hold too, or it would be killed as stuck."""
    at = scene(world, Work(seconds=1_000.0), hold=5_000.0)
    world.move(0, at.rival)
    world.run(10)
    turns = at.process.status.read_stamp().turns
    world.run(60)
    assert at.process.status.read_stamp().turns > turns + 60


def test_a_hold_does_not_commit_the_same_again_and_again(world: World) -> None:
    """Only what is new, and now and then the same: its answer tells whether the group still knows the member."""
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


def test_a_commit_under_way_is_not_forgotten_by_a_revoke(world: World) -> None:
    """It may fail, and its answer could not be heard any more: so it is sent again while it still can be."""
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
    """The executor's thread may be about to call the handler when the first one comes (B6)."""
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
