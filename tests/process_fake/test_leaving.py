"""How a process leaves: the running task finishes, no task starts, and all answered requests are committed."""

from __future__ import annotations

import pytest

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import ACKS, World
from worker.core.lifecycle import State
from worker.errors import ExitCode
from worker.process import responder as responder_module
from worker.process.leaving import SETTLE_LIMIT
from worker.process.status_block import Command

CANCEL_GRACE = 5.0  # seconds, the default of the configuration


def test_a_drain_lets_the_running_task_finish_and_starts_nothing_more(world: World) -> None:
    """The answer is confirmed and committed before the process leaves the group. The next process runs the rest."""
    for _ in range(5):
        world.request("long", work=Work(seconds=100.0))
    process = world.process()
    world.until(lambda: process.starts)
    assert world.leave(process) == [ExitCode.DRAINED]
    assert process.starts == [(0, 0, 1)]
    assert world.answered() == [(0, 0)]
    assert world.committed() == 1
    assert process.consumer.closed
    successor = world.process()
    world.until(lambda: len(world.answers()) == 5)
    assert [offset for _, offset, _ in successor.starts] == [1, 2, 3, 4]


def test_a_drain_is_over_at_once_when_nothing_runs(world: World) -> None:
    process = world.process()
    world.run(5)
    started = world.clock()
    assert world.leave(process) == [ExitCode.DRAINED]
    assert world.clock() - started < 1


def test_a_drain_before_the_start_command_starts_no_task(world: World) -> None:
    """The drain may begin while the process still waits for its peer processes."""
    world.request()
    process = world.process(started=False)
    world.run(5)
    assert world.leave(process) == [ExitCode.DRAINED]
    process.order(Command.START_TASKS)
    assert process.starts == []


def test_a_drain_does_not_wait_for_the_next_attempt(world: World) -> None:
    """The next process makes that attempt, perhaps after a back-off of hours."""
    world.request("flaky", work=failing(retry_after=10_000))
    process = world.process()
    world.until(lambda: process.starts)
    world.run(1)
    started = world.clock()
    assert world.leave(process) == [ExitCode.DRAINED]
    assert world.clock() - started < 1
    assert world.committed() is None


def test_a_task_that_fails_during_a_drain_is_not_repeated(world: World) -> None:
    world.request("flaky", work=failing(seconds=20.0, retry_after=0.0))
    process = world.process()
    world.until(lambda: process.starts)
    assert world.leave(process) == [ExitCode.DRAINED]
    assert len(process.starts) == 1
    assert world.answers() == []


def test_a_signal_to_the_process_itself_drains_it_too(world: World) -> None:
    process = world.process()
    world.run(1)
    process.loop.drain_requested = True
    world.until(lambda: process.exit_code is not None)
    assert process.exit_code is ExitCode.DRAINED


def test_a_process_keeps_polling_while_it_drains(world: World) -> None:
    """Otherwise the group removes the member, and hours of work are lost."""
    world.request("long", work=Work(seconds=300.0))
    process = world.process(max_poll_interval=5.0)
    world.until(lambda: process.starts)
    assert world.leave(process) == [ExitCode.DRAINED]
    assert world.committed() == 1


def test_a_process_that_drains_leaves_new_records_to_others(world: World) -> None:
    world.request("long", work=Work(seconds=50.0))
    process = world.process()
    world.until(lambda: process.starts)
    process.order(Command.DRAIN)
    for number in (0, 1) * 10:
        world.request(number=number)
    world.until(lambda: process.exit_code is not None)
    assert world.answered() == [(0, 0)]
    assert process.loop.assignment.queued == 0


def test_a_commit_that_fails_during_a_drain_is_sent_again(world: World) -> None:
    """The process does not leave the group before it has the reply to the commit."""
    world.broker.commit_delay = 1.0
    world.broker.fail_commits("COORDINATOR_LOAD_IN_PROGRESS")
    world.request("task", work=Work(seconds=5.0))
    process = world.process()
    world.until(lambda: process.starts)
    assert world.leave(process) == [ExitCode.DRAINED]
    assert world.committed() == 1


# ---------------------------------------------------------------- cancellation


def test_no_task_starts_after_a_cancellation(world: World) -> None:
    """This includes a task of another partition that the executor already has."""
    world.quick()
    process = world.process()
    world.until(lambda: world.committed() == 30)
    for number in (0, 1):
        world.request("long", number, work=Work(seconds=500.0, obeys=1.0))
    world.until(lambda: process.loop._dispatcher.in_flight == 2)
    world.run(1)
    process.order(Command.CANCEL)
    world.until(lambda: process.exit_code is not None)
    assert len(process.starts) == 31


def test_a_cancelled_task_is_dropped_and_the_next_process_runs_it_again(world: World) -> None:
    """There is no answer and no commit. The exit code says that work was given up."""
    world.request("long", work=Work(seconds=5_000.0, obeys=1.0))
    process = world.process()
    world.until(lambda: process.starts)
    process.order(Command.CANCEL)
    world.until(lambda: process.exit_code is not None)
    assert [reason for _, reason in process.service.cancelled] == ["drain"]
    assert process.exit_code is ExitCode.DRAIN_TIMED_OUT
    assert (world.answers(), world.committed()) == ([], None)
    assert process.counter("dropped_total") == 1
    world.script["long"] = Work()
    world.process()
    world.until(lambda: world.committed() == 1)
    assert world.answers()[0].attempt == 1


def test_a_process_ends_although_its_task_ignores_the_cancellation(world: World) -> None:
    """It waits for some seconds of grace, and ends while the task is still running."""
    world.request("deaf", work=Work(seconds=5_000.0, obeys=None))
    process = world.process()
    world.until(lambda: process.starts)
    started = world.clock()
    process.order(Command.CANCEL)
    world.until(lambda: process.exit_code is not None)
    assert CANCEL_GRACE <= world.clock() - started < CANCEL_GRACE + 2
    assert process.exit_code is ExitCode.DRAIN_TIMED_OUT
    assert world.committed() is None


def test_a_cancellation_cuts_a_drain_short(world: World) -> None:
    """A second signal cancels the running task at any time."""
    world.request("long", work=Work(seconds=50_000.0, obeys=0.5))
    process = world.process()
    world.until(lambda: process.starts)
    process.order(Command.DRAIN)
    world.run(500)
    assert process.exit_code is None
    assert process.loop.lifecycle.state is State.DRAINING
    process.order(Command.CANCEL)
    world.until(lambda: process.exit_code is not None)
    assert process.exit_code is ExitCode.DRAIN_TIMED_OUT


def test_a_cancellation_without_a_running_task_ends_as_a_drain(world: World) -> None:
    process = world.process()
    world.run(1)
    process.order(Command.CANCEL)
    world.until(lambda: process.exit_code is not None)
    assert process.exit_code is ExitCode.DRAINED


def test_unconfirmed_answers_are_settled_also_after_a_cancellation(world: World) -> None:
    """Their tasks ended before the cancellation."""
    world.broker.topics[ACKS].delay = 2.0
    world.request()
    process = world.process()
    world.until(lambda: process.producer.produced)
    process.order(Command.CANCEL)
    world.until(lambda: process.exit_code is not None)
    assert (world.answered(), world.committed()) == ([(0, 0)], 1)
    assert process.exit_code is ExitCode.DRAINED


# ---------------------------------------------------------------- while the broker is away


@pytest.mark.parametrize("order", [Command.DRAIN, Command.CANCEL])
def test_a_process_that_leaves_does_not_wait_for_a_broker_forever(world: World, order: Command) -> None:
    """Only the broker's confirmations are missing then. The requests run again, so none is lost."""
    world.request("task", work=Work(seconds=20.0))
    process = world.process()
    world.until(lambda: process.starts)
    world.broker.leave()
    world.run(30)
    started = world.clock()
    process.order(order)
    world.until(lambda: process.exit_code is not None)
    limit = SETTLE_LIMIT if order is Command.DRAIN else CANCEL_GRACE
    assert limit <= world.clock() - started < limit + 2
    assert process.exit_code is ExitCode.DRAIN_TIMED_OUT


def test_a_process_with_the_most_unconfirmed_answers_leaves_without_the_broker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results that wait for confirmations of other answers do not count as running tasks."""
    monkeypatch.setattr(responder_module, "MAX_UNCONFIRMED", 30)
    for _ in range(400):
        world.request("quick", work=Work(seconds=0.001))
    world.broker.topics[ACKS].delay = 10**6
    process = world.process()
    world.run(20)
    assert process.loop._dispatcher.in_flight
    started = world.clock()
    process.order(Command.DRAIN)
    world.until(lambda: process.exit_code is not None, seconds=2 * SETTLE_LIMIT)
    assert world.clock() - started < SETTLE_LIMIT + 2
    assert process.exit_code is ExitCode.DRAIN_TIMED_OUT


def test_the_wait_for_the_broker_begins_when_the_last_task_has_ended(world: World) -> None:
    """The time that the drain waits for its task does not count."""
    world.request("task", work=Work(seconds=200.0))
    process = world.process()
    world.until(lambda: process.starts)
    process.order(Command.DRAIN)
    world.run(190)
    world.broker.leave(40)
    world.until(lambda: process.exit_code is not None)
    assert process.exit_code is ExitCode.DRAINED
    assert world.committed() == 1


def test_a_broker_that_comes_back_in_time_gets_the_answer_and_the_commit(world: World) -> None:
    world.request("task", work=Work(seconds=20.0))
    process = world.process()
    world.until(lambda: process.starts)
    world.broker.leave(50)
    process.order(Command.DRAIN)
    world.until(lambda: process.exit_code is not None)
    assert process.exit_code is ExitCode.DRAINED
    assert world.committed() == 1


def test_a_process_whose_membership_is_stale_finishes_its_task_and_leaves(world: World) -> None:
    """Its supervisor starts another process, which joins the group."""
    world.request(work=Work(seconds=100.0))
    world.request()
    process = world.process(started=True)
    world.until(lambda: process.starts)
    process.consumer.stale = True
    world.until(lambda: process.exit_code is not None)
    assert process.exit_code is ExitCode.DRAINED
    assert (world.answered(), world.committed()) == ([(0, 0)], 1)


def test_a_process_that_leaves_does_not_wait_for_a_commit_of_ended_leases(world: World) -> None:
    """A client that does not find its coordinator keeps the commit for minutes, and no lease needs it any more."""
    world.broker.commit_delay = 10_000.0
    world.request(work=Work(seconds=1.0))
    process = world.process()
    world.until(lambda: process.loop._committer.in_flight)
    world.move(0, world.rival())
    world.broker.group("group").leave(process.consumer)
    process.consumer.stale = True
    started = world.clock()
    world.until(lambda: process.exit_code is not None)
    assert process.exit_code is ExitCode.DRAINED
    assert world.clock() - started < 5
