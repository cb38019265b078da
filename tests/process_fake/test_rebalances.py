"""Partitions that come and go while tasks run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import ACKS, World
from worker.errors import ExitCode
from worker.process.cell import Command
from worker.process.poller import CANCEL_GRACE

if TYPE_CHECKING:
    from tests.process_fake.world import Process, Rival


class Scene(NamedTuple):
    """A process that owns both partitions and runs a task of partition 0, and a rival that owns nothing yet."""

    world: World
    process: Process
    rival: Rival

    def hand_over(self, number: int = 0) -> None:
        """The rival has the partition."""
        self.world.until(lambda: number in self.rival.owned)

    def offsets_of_rival(self, number: int = 0) -> list[int]:
        return [record.offset for record in self.rival.records if record.partition.number == number]


def scene(world: World, work: Work, *, hold: float = 1_000.0, others: Work | None = None, **options: float) -> Scene:
    """Three tasks of partition 0; of 1 as well where ``others`` are given."""
    for _ in range(3):
        world.request("task", 0, work=work)
    process = world.process(hold=hold, started=True, **options)
    world.until(lambda: process.owned == [0, 1])
    for number in (0, 1):
        world.move(number, process)
    rival = world.rival()
    world.until(lambda: process.starts)
    if others is not None:
        for _ in range(3):
            world.request("other", 1, work=others)
    return Scene(world, process, rival)


# ---------------------------------------------------------------- revoked


def test_a_revoked_partition_is_held_until_its_running_task_is_settled(world: World) -> None:
    """Answered, committed, and then let go: the new owner begins right behind it, and nothing is done twice."""
    at = scene(world, Work(seconds=100.0))
    world.run(10)
    world.move(0, at.rival)
    world.run(80)
    assert at.rival.owned == set()
    at.hand_over()
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
    world.until(lambda: at.process.poller._feed.handed == 3)
    world.run(1)
    world.move(0, at.rival)
    at.hand_over()
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
    at.hand_over(1)
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
    at.hand_over()
    assert world.committed() == 1


def test_beyond_the_limit_the_task_is_cancelled_and_given_up(world: World) -> None:
    """No answer, no commit: the new owner does it again."""
    at = scene(world, Work(seconds=5_000.0, obeys=2.0), hold=60.0)
    started = world.clock()
    world.move(0, at.rival)
    at.hand_over()
    assert 62 <= world.clock() - started < 64
    assert [reason for _, reason in at.process.service.cancelled] == ["revoked"]
    assert (world.answers(), world.committed()) == ([], None)
    world.until(lambda: at.rival.records)
    assert at.offsets_of_rival()[0] == 0
    assert at.process.exit_code is None


def test_who_does_not_obey_is_not_waited_for_either(world: World) -> None:
    """What it comes to in the end is dropped, as its lease is over; then the process goes on with what it has."""
    at = scene(world, Work(seconds=500.0, obeys=None), hold=60.0, others=Work(seconds=1.0))
    started = world.clock()
    world.move(0, at.rival)
    at.hand_over()
    assert 60 + CANCEL_GRACE <= world.clock() - started < 62 + CANCEL_GRACE
    world.until(lambda: world.committed(1) == 3)
    assert {number for number, _ in world.answered()} == {1}
    assert world.committed(0) is None
    assert at.process.counter("dropped_total") == 1


def test_a_task_that_fails_while_it_is_held_is_the_next_owners(world: World) -> None:
    """Its next attempt is made there; the partition is let go at once."""
    at = scene(world, failing(seconds=20.0, retry_after=0.0))
    world.move(0, at.rival)
    at.hand_over()
    assert at.process.starts == [(0, 0, 1)]
    assert (world.answers(), world.committed()) == ([], None)


def test_a_task_that_waits_for_its_next_attempt_is_not_held(world: World) -> None:
    at = scene(world, failing(retry_after=5_000.0))
    world.run(5)
    started = world.clock()
    world.move(0, at.rival)
    at.hand_over()
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
    turns = at.process.cell.read_stamp().turns
    world.run(60)
    assert at.process.cell.read_stamp().turns > turns + 60


def test_a_hold_does_not_commit_the_same_again_and_again(world: World) -> None:
    """What was under way when it began is sent once more, and then only what is new."""
    world.broker.commit_delay = 0.5
    at = scene(world, Work(seconds=2.0))
    world.until(lambda: len(world.answers()) == 1)
    at.world.script["task"] = Work(seconds=60.0)
    world.until(lambda: len(at.process.starts) == 3)
    world.run(0.1)
    world.move(0, at.rival)
    told = len(world.broker.group("group").commits)
    at.hand_over()
    assert len(world.broker.group("group").commits) - told <= 3


def test_a_result_that_came_when_the_lease_was_gone_is_dropped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task ended by itself just before the loss, unheard of: it was not cancelled, and is not answered."""
    at = scene(world, Work(seconds=5.0))
    world.until(lambda: len(at.process.starts) == 3)
    world.run(1)
    poll = at.process.consumer.poll

    def finish_and_lose(limit: int, timeout: float) -> object:
        monkeypatch.undo()
        at.process.service._finish()
        world.broker.group("group").leave(at.process.consumer)
        return poll(limit, timeout)

    monkeypatch.setattr(at.process.consumer, "poll", finish_and_lose)
    world.run(3)
    assert at.process.service.cancelled == []
    assert world.answered() == [(0, 0), (0, 1)]
    assert at.process.counter("dropped_total") == 1
    world.until(lambda: world.committed() == 3)
    assert world.answered() == [(0, 0), (0, 1), (0, 2)]


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
    at.hand_over()
    world.run(10)
    assert at.rival.records == []
    assert world.committed() == 4


# ---------------------------------------------------------------- assigned


def test_a_partition_that_comes_back_has_a_new_lease(world: World) -> None:
    """What was queued under the old one is gone, and read again from the last commit."""
    at = scene(world, Work(seconds=1.0))
    world.move(0, at.rival)
    at.hand_over()
    world.move(0, at.process)
    world.until(lambda: world.committed() == 3)
    assert [offset for _, offset, _ in at.process.starts] == [0, 1, 2]
    assert world.answered() == [(0, 0), (0, 1), (0, 2)]


# ---------------------------------------------------------------- lost


def test_a_lost_task_is_cancelled_and_nothing_of_it_is_settled(world: World) -> None:
    """The partitions may already run elsewhere: no answer, no commit, and not a word to the broker about them."""
    at = scene(world, Work(seconds=300.0, obeys=1.0), max_poll_interval=50.0)
    told = len(world.broker.group("group").commits)
    world.broker.group("group").leave(at.process.consumer)
    world.until(lambda: at.process.service.cancelled)
    assert [reason for _, reason in at.process.service.cancelled] == ["revoked"]
    world.run(10)
    assert world.answers() == []
    assert at.process.counter("dropped_total") >= 1
    assert at.process.counter("rebalances_total", "lost") == 1
    # What the next lease notes for itself, it notes where the one before has begun.
    commits = world.broker.group("group").commits[told:]
    assert [offset for member, _, offset in commits if member == at.process.consumer.name and offset] == []


def test_a_lost_task_that_does_not_obey_finishes_for_nothing(world: World) -> None:
    """And is done again by whoever has the partition now, which may be the same process."""
    at = scene(world, Work(seconds=100.0, obeys=None))
    world.broker.group("group").leave(at.process.consumer)
    world.until(lambda: world.committed() == 3)
    assert at.process.starts == [(0, 0, 1), (0, 0, 2), (0, 1, 1), (0, 2, 1)]
    assert world.answered() == [(0, 0), (0, 1), (0, 2)]


def test_answers_that_were_to_be_repeated_are_not_after_the_loss(world: World) -> None:
    """The delivery had failed, the next owner answers: ours would be a second one, hours later."""
    world.broker.fail(ACKS, "NOT_ENOUGH_REPLICAS")
    at = scene(world, Work(seconds=1.0))
    world.until(lambda: at.process.counter("delivery_failures_total", "NOT_ENOUGH_REPLICAS"))
    world.move(0, at.rival)
    world.broker.group("group").leave(at.process.consumer)
    at.hand_over()
    world.run(30)
    assert world.answers() == []
    assert at.process.poller._answers.outstanding == 0


def test_a_bad_news_of_a_lost_lease_is_not_sent(world: World) -> None:
    """Its dead letter was under way; the new owner buries it again, and its answer is the only one."""
    world.broker.topics["requests.dlq"].delay = 5.0
    world.raw(b"\xff")
    process = world.process()
    world.until(lambda: process.producer.produced)
    rival = world.rival()
    world.move(0, rival)
    world.broker.group("group").leave(process.consumer)
    world.run(30)
    assert world.answers() == []
    assert process.poller._answers.outstanding == 0


@pytest.mark.parametrize("seconds", [20.0, 200.0])
def test_who_holds_longer_than_the_group_waits_loses_the_lease(world: World, seconds: float) -> None:
    """Then the others have been given everything: the answer of the held task is not committed."""
    at = scene(world, Work(seconds=seconds), max_poll_interval=100.0)
    world.move(0, at.rival)
    at.hand_over()
    world.run(seconds)
    assert world.committed() == (1 if seconds < 100 else None)
    assert at.process.counter("rebalances_total", "lost") == (0 if seconds < 100 else 1)
    assert at.process.error is None
