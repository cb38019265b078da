"""Detached tasks: a task goes on in one process while another one has its partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.detaching import each_once, process, started
from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import GROUP, REQUESTS, World
from worker.core.detached import mark_group
from worker.core.model import Partition
from worker.errors import ExitCode
from worker.kafka.ports import KafkaFailure
from worker.process.status_block import Command
from worker.testing.group_calls import FakeGroupClient

if TYPE_CHECKING:
    from tests.process_fake.world import Process
PARTITIONS = 4
GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
ALL_GUARANTEES = pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])


def long_task_and_short_ones(world: World, seconds: float = 40.0, short: int = 200) -> None:
    world.request("long", 0, work=Work(seconds))
    for n in range(short):
        world.request(f"short-{n}", n % 4, work=Work(0.02))


@ALL_GUARANTEES
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_short_tasks_do_not_wait_behind_a_long_one(world: World, guarantee: str, ordering: str) -> None:
    first, second = (process(world, guarantee=guarantee, ordering=ordering) for _ in range(2))
    world.run(20)
    began = world.clock()
    long_task_and_short_ones(world)
    world.until(lambda: len(world.answered()) == 200)
    assert world.clock() - began < 12
    world.until(lambda: len(world.answered()) == 201)
    world.run(10)
    assert sum(len(one.starts) for one in (first, second)) == 201
    each_once(world)
    world.until(lambda: all(world.committed(n) in {50, 51} for n in range(4)))
    assert sorted(map(len, (first.owned, second.owned))) == [2, 2]


@ALL_GUARANTEES
def test_a_process_that_comes_meanwhile_gets_the_work(world: World, guarantee: str) -> None:
    first = process(world, guarantee=guarantee)
    world.run(20)
    long_task_and_short_ones(world)
    world.run(5)
    assert not world.answered()
    second = process(world, guarantee=guarantee)
    came = world.clock()
    world.until(lambda: len(world.answered()) == 200)
    assert world.clock() - came < 12
    world.until(lambda: len(world.answered()) == 201)
    world.run(10)
    assert len(first.starts) + len(second.starts) == 201
    each_once(world)


def test_requests_that_come_later_are_noticed(world: World) -> None:
    """A process knows the end of a partition only as long as it fetches from it, also beside a long task."""
    for _ in range(2):
        each = process(world)
        each.consumer.end = lambda partition: -1  # type: ignore[method-assign]  # as of a paused partition
    world.run(20)
    world.request("long", 0, work=Work(400))
    world.run(310)
    for n in range(20):
        world.request(f"short-{n}", n % 4, work=Work(0.02))
    world.until(lambda: len(world.answered()) == 20)
    assert world.clock() < 1_000 + 330 + 12
    world.until(lambda: len(world.answered()) == 21)
    each_once(world)


def test_in_order_of_the_partition_only_that_partition_waits(world: World) -> None:
    for _ in range(2):
        process(world, ordering="partition")
    world.run(20)
    long_task_and_short_ones(world)
    world.until(lambda: len(world.answered()) == 150)
    assert world.clock() < 1_000 + 20 + 12
    world.run(10)
    assert len(world.answered()) == 150
    world.until(lambda: len(world.answered()) == 201)
    each_once(world)


def test_in_order_of_the_key_only_that_key_waits(world: World) -> None:
    processes = [process(world, ordering="key") for _ in range(2)]
    world.run(20)
    world.request("long", 0, key=b"a", work=Work(40))
    behind = world.request("behind", 0, key=b"a", work=Work(0.02))
    for n in range(20):
        world.request(f"short-{n}", 0, key=b"b", work=Work(0.02))
    world.until(lambda: len(world.answered()) == 20)
    assert world.clock() < 1_000 + 20 + 12
    assert not started(world, behind, 0, *processes)
    world.until(lambda: len(world.answered()) == 22)
    assert [one.origin.offset for one in world.answers()] == list(range(22))


def detached(world: World, guarantee: str = "exactly-once", **options: Any) -> tuple[Process, Process]:
    """The process that runs a task of partition 0, and the one that has that partition by now."""
    work = options.pop("work", None) or Work(options.pop("seconds", 100.0))
    first, second = (process(world, guarantee=guarantee, **options) for _ in range(2))
    world.run(20)
    world.request("long", 0, work=work)
    world.request("short", 0, work=Work(0.02))
    world.until(lambda: len(world.answered()) == 1)
    world.run(1)
    holder, owner = (first, second) if first.starts and (0, 0, 1) in first.starts else (second, first)
    assert 0 in owner.owned
    assert world.noted().detached
    return holder, owner


@GUARANTEES
def test_a_task_whose_holder_has_died_is_taken_over(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee)
    holder.kill()
    world.until(lambda: (0, 0, 2) in owner.starts)
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)
    assert owner.counter("taken_over_total") == 1
    world.until(lambda: world.committed(0) == 2)


@GUARANTEES
def test_a_holder_that_was_frozen_does_not_answer_what_was_taken_over(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee)
    world.clock.freeze(holder._fibre)
    world.until(lambda: len(world.answered()) == 2)
    world.run(100)
    world.clock.thaw(holder._fibre)
    world.run(100)
    each_once(world)
    assert holder.counter("superseded_total") == 1
    assert owner.counter("taken_over_total") == 1
    assert sorted([*holder.owned, *owner.owned]) == [0, 1, 2, 3]


@GUARANTEES
def test_checks_of_a_detached_task_do_not_add_up_during_an_outage(
    world: World, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ten minutes the coordinator does not answer, and the holder needs it every 30 s. Then the task ends."""
    detached(world, guarantee, seconds=1_000.0)
    requests: list[float] = []

    def committed(_client: FakeGroupClient, group: str, *_: Any, **__: Any) -> KafkaFailure:
        if group == GROUP:
            requests.append(world.clock())
        return KafkaFailure("COORDINATOR_NOT_AVAILABLE", "scripted")

    with monkeypatch.context() as patch:
        patch.setattr(FakeGroupClient, "committed", committed)
        world.run(600)
    assert 15 <= len(requests) <= 25
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)


@GUARANTEES
def test_the_next_owner_goes_on_when_both_have_died(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee)
    holder.kill()
    owner.kill()
    third = process(world, guarantee=guarantee)
    world.until(lambda: (0, 0, 2) in third.starts)
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)


def test_an_owner_that_dies_after_it_has_vacated_a_task_leaves_the_decision_to_the_next(world: World) -> None:
    holder, owner = detached(world)
    holder.kill()
    world.until(lambda: any(task.vacated for task in world.noted().detached.values()))
    owner.kill()
    third = process(world, guarantee="exactly-once")
    world.until(lambda: (0, 0, 2) in third.starts)
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)


@GUARANTEES
def test_a_failed_attempt_is_repeated_by_the_owner(world: World, guarantee: str) -> None:
    """After the pause that the policy wants, and in the order of attempts."""
    holder, owner = detached(world, guarantee, work=[failing(20), Work(0.1)])
    world.until(lambda: len(world.answered()) == 2)
    starts = [(at, n) for one in (holder, owner) for at, task, n in one.service.started if task.record.offset == 0]
    (_, first), (_, second) = sorted((at, n) for at, n in starts if n)
    assert (first, second) == (1, 2)
    each_once(world)


@GUARANTEES
def test_the_last_attempt_is_a_dead_letter_of_the_holder(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee, work=failing(20), max_attempts=1)
    world.until(lambda: len(world.answered()) == 2)
    assert len(world.dead_letters()) == 1
    assert len(holder.starts) + len(owner.starts) == 2
    each_once(world)


@GUARANTEES
def test_a_process_that_drains_answers_its_detached_task_first(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee, seconds=60.0)
    world.leave(holder)
    assert len(world.answered()) == 2
    world.until(lambda: world.committed(0) == 2)
    assert len(holder.starts) + len(owner.starts) == 2


@ALL_GUARANTEES
def test_a_process_that_drains_lets_its_partitions_go_at_once(world: World, guarantee: str) -> None:
    """It goes on with its task, and others work on what waits behind it."""
    holder, owner = (process(world, guarantee=guarantee) for _ in range(2))
    world.run(20)
    world.request("long", holder.owned[0], work=Work(60))
    world.until(lambda: holder.starts)
    world.run(1.5)
    holder.order(Command.DRAIN)
    since = world.clock()
    for number in range(4):
        world.request("short", number, work=Work(0.02))
    world.until(lambda: len(world.answered()) == 4)
    assert world.clock() - since < 10
    assert not holder.owned
    world.until(lambda: holder.exit_code is not None)
    assert holder.exit_code is ExitCode.DRAINED
    world.run(10)
    assert len(world.answered()) == 5
    assert len(holder.starts) + len(owner.starts) == 5
    each_once(world)


def test_a_process_that_drains_alone_keeps_its_partitions(world: World) -> None:
    alone = process(world)
    world.request("long", 0, work=Work(30))
    world.until(lambda: alone.starts)
    world.leave(alone)
    assert len(world.answered()) == 1
    assert (alone.counter("gave_way_total"), alone.counter("detached_total")) == (0, 0)


def test_a_cancelled_detached_task_starts_elsewhere_without_a_lost_attempt(world: World) -> None:
    holder, owner = detached(world)
    holder.order(Command.CANCEL)
    world.until(lambda: (0, 0, 1) in owner.starts)
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)


def test_a_holder_that_dies_with_its_mark_pending_is_taken_over_when_the_transaction_has_ended(world: World) -> None:
    holder, owner = detached(world, seconds=30.0)
    holder.transaction_thread.look_seconds = 1.0
    (claim,) = holder.assembly._holder._claims
    group = world.broker.group(mark_group(GROUP, Partition(REQUESTS, 0), 0, claim.holder))
    world.until(lambda: group.pending[Partition(REQUESTS, 0)] == 1)
    holder.kill()
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)
    assert (0, 0, 2) in owner.starts


def test_a_holder_whose_mark_is_pending_when_it_is_vacated_does_not_answer(world: World) -> None:
    """It looks after its mark is pending, and finds that it does not hold the task any more."""
    holder, owner = detached(world, seconds=30.0)
    holder.transaction_thread.look_seconds = 70.0
    world.until(lambda: holder.transaction_thread.busy)
    world.clock.freeze(holder._fibre)
    world.until(lambda: len(world.answered()) == 2)
    world.clock.thaw(holder._fibre)
    world.run(300)
    each_once(world)
    assert (0, 0, 2) in owner.starts
    assert holder.counter("superseded_total") == 1


def test_the_owner_waits_for_the_pending_mark_of_a_holder_that_is_frozen_before_it_decides(world: World) -> None:
    """The holder has looked and found that it is named, so its transaction may still commit."""
    holder, owner = detached(world, seconds=30.0)
    (claim,) = holder.assembly._holder._claims
    group = world.broker.group(mark_group(GROUP, Partition(REQUESTS, 0), 0, claim.holder))
    holder.transaction_thread.look_seconds = 1.0
    world.until(lambda: group.pending[Partition(REQUESTS, 0)] == 1)
    holder.transaction_thread.look_seconds = 200.0  # from the look, a second later, to the decision
    world.run(2)
    world.clock.freeze(holder._fibre)
    world.until(lambda: len(world.answered()) == 2)
    world.clock.thaw(holder._fibre)
    world.run(200)
    each_once(world)
    assert started(world, 0, 0, holder, owner) == 1


def test_a_task_is_not_taken_over_before_the_group_knows_that_it_is_vacated(world: World) -> None:
    """The holder comes back before that commit, finds that it is named, and answers."""
    holder, owner = detached(world, "at-least-once", seconds=30.0)
    world.clock.freeze(holder._fibre)
    world.broker.fail_commits("COORDINATOR_LOAD_IN_PROGRESS", 10_000)
    tasks = owner.loop.assignment.partitions[Partition(REQUESTS, 0)].detached
    world.until(lambda: all(task.vacated for task in tasks.values()))
    world.run(5)
    world.clock.thaw(holder._fibre)
    world.until(lambda: len(world.answered()) == 2)
    world.broker.commit_faults.clear()
    world.run(200)
    each_once(world)
    assert started(world, 0, 0, holder, owner) == 1


@GUARANTEES
def test_a_holder_that_was_frozen_does_not_answer_what_its_successor_holds(world: World, guarantee: str) -> None:
    """The task is detached a second time, so an entry for it is there, which names the other holder."""
    holder, owner = detached(world, guarantee, work=[Work(60.0), Work(400.0)])
    world.clock.freeze(holder._fibre)
    world.until(lambda: (0, 0, 2) in owner.starts)
    third = process(world, guarantee=guarantee)
    world.run(5)
    world.request("behind", 0, work=Work(0.02))
    world.until(lambda: len(world.answered()) == 2)
    assert 0 in third.owned
    assert world.noted().detached
    world.clock.thaw(holder._fibre)
    world.run(100)
    assert len(world.answered()) == 2
    assert holder.counter("superseded_total") == 1
    world.until(lambda: len(world.answered()) == 3)
    each_once(world)


def test_a_note_whose_commit_was_not_answered_keeps_the_partition_until_it_is_confirmed(world: World) -> None:
    first, second = (process(world, guarantee="exactly-once") for _ in range(2))
    world.run(20)
    world.request("long", 0, work=Work(60))
    world.run(2)
    world.broker.fail_commits("_TIMED_OUT", 3)
    world.request("short", 0, work=Work(0.02))
    world.until(lambda: len(world.answered()) == 1)
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)
    assert len(first.starts) + len(second.starts) == 2


def test_nothing_is_detached_while_a_member_does_not_understand_it(world: World) -> None:
    """A member of an older version would start the task again."""
    old = process(world, state_topic="")
    new = process(world)
    world.run(20)
    for number in range(4):
        world.request("long", number, work=Work(30))
        world.request("short", number, work=Work(0.02))
    world.until(lambda: len(world.answered()) == 8)
    each_once(world)
    assert (old.counter("detached_total"), new.counter("detached_total")) == (0, 0)


def test_without_a_state_topic_a_partition_is_held_as_ever(world: World) -> None:
    first = process(world, state_topic="")
    world.run(5)
    world.request("long", 0, work=Work(30))
    world.run(5)
    second = process(world, state_topic="")
    world.move(0, second)
    world.run(10)
    assert 0 in first.owned
    world.until(lambda: 0 in second.owned)
    assert world.answered() == [(0, 0)]
