"""Detached tasks: a task keeps running in one process while another process owns its partition."""

from __future__ import annotations

import time
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
def test_a_process_that_joins_during_a_long_task_gets_the_short_tasks(world: World, guarantee: str) -> None:
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


def test_short_requests_that_come_late_in_a_long_task_do_not_wait_for_it(world: World) -> None:
    """A process must fetch from its partitions during a long task. Otherwise it does not know their ends."""
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


def test_with_ordering_partition_only_the_partition_of_the_long_task_waits(world: World) -> None:
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


def test_with_ordering_key_only_the_key_of_the_long_task_waits(world: World) -> None:
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
    """Return the process that runs a detached task of partition 0, and the owner of that partition."""
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
def test_a_holder_that_was_frozen_does_not_answer_a_task_that_was_taken_over(world: World, guarantee: str) -> None:
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
def test_checks_of_a_detached_task_do_not_accumulate_during_an_outage(
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
def test_the_next_owner_takes_over_when_holder_and_owner_have_died(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee)
    holder.kill()
    owner.kill()
    third = process(world, guarantee=guarantee)
    world.until(lambda: (0, 0, 2) in third.starts)
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)


def test_the_next_owner_takes_over_a_task_that_a_dead_owner_has_vacated(world: World) -> None:
    holder, owner = detached(world)
    holder.kill()
    world.until(lambda: any(task.vacated for task in world.noted().detached.values()))
    owner.kill()
    third = process(world, guarantee="exactly-once")
    world.until(lambda: (0, 0, 2) in third.starts)
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)


@GUARANTEES
def test_the_owner_repeats_a_failed_attempt_of_a_detached_task(world: World, guarantee: str) -> None:
    """It starts after the back-off, and the attempts are in order."""
    holder, owner = detached(world, guarantee, work=[failing(20), Work(0.1)])
    world.until(lambda: len(world.answered()) == 2)
    (first,), (second,) = (
        [(at, attempt) for at, task, attempt in one.service.started if task.record.offset == 0]
        for one in (holder, owner)
    )
    assert (first[1], second[1]) == (1, 2)
    assert second[0] - first[0] >= 20 + 5, "the task and the shortest back-off"
    each_once(world)


@GUARANTEES
def test_a_wrong_clock_of_the_holder_does_not_delay_the_next_attempt(
    world: World, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is three hours fast."""
    holder, owner = detached(world, guarantee, work=[failing(20), Work(0.1)])
    (claim,) = holder.assembly._holder._claims
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + (0 if claim.leaving else 10_800))
    world.until(lambda: (0, 0, 2) in owner.starts, seconds=60)
    each_once(world)


@GUARANTEES
def test_the_holder_writes_the_dead_letter_after_the_last_attempt(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee, work=failing(20), max_attempts=1)
    world.until(lambda: len(world.answered()) == 2)
    assert len(world.dead_letters()) == 1
    world.until(lambda: holder.counter("dead_letters_total") == 1)
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
def test_a_process_that_drains_gives_up_its_partitions_at_once(world: World, guarantee: str) -> None:
    """It finishes its task, and another process runs the requests behind the task."""
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


def test_a_detached_task_that_a_drain_cancels_starts_elsewhere_as_the_same_attempt(world: World) -> None:
    holder, owner = detached(world)
    holder.order(Command.CANCEL)
    world.until(lambda: (0, 0, 1) in owner.starts)
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)


def test_a_dead_holders_task_with_a_pending_mark_is_taken_over_after_the_transaction(world: World) -> None:
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
    """It reads the entry when its mark is pending, and finds that the entry no longer names it."""
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


def test_the_owner_waits_for_the_pending_mark_of_a_frozen_holder(world: World) -> None:
    """The holder has read that the entry names it, so its transaction may still commit."""
    holder, owner = detached(world, seconds=30.0)
    (claim,) = holder.assembly._holder._claims
    group = world.broker.group(mark_group(GROUP, Partition(REQUESTS, 0), 0, claim.holder))
    holder.transaction_thread.look_seconds = 1.0
    world.until(lambda: group.pending[Partition(REQUESTS, 0)] == 1)
    holder.transaction_thread.look_seconds = 200.0  # from reading the entry, a second later, to the decision
    world.run(2)
    world.clock.freeze(holder._fibre)
    world.until(lambda: len(world.answered()) == 2)
    world.clock.thaw(holder._fibre)
    world.run(200)
    each_once(world)
    assert started(world, 0, 0, holder, owner) == 1


def test_a_task_is_not_taken_over_before_a_commit_records_that_it_is_vacated(world: World) -> None:
    """The holder wakes up before that commit, finds that the entry names it, and answers."""
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
def test_the_owner_commits_a_vacated_task_again_if_a_late_commit_has_replaced_it(world: World, guarantee: str) -> None:
    """Otherwise it would wait for its next commit, up to an hour, because the holder still reads the entry before."""
    holder, owner = detached(world, guarantee)
    committed = world.broker.group(GROUP).committed
    before = committed[Partition(REQUESTS, 0)]
    world.clock.freeze(holder._fibre)
    world.until(lambda: all(task.vacated for task in world.noted().detached.values()))
    committed[Partition(REQUESTS, 0)] = before
    assert not any(task.vacated for task in world.noted().detached.values())
    world.until(lambda: (0, 0, 2) in owner.starts, seconds=20)
    each_once(world)


@GUARANTEES
def test_a_holder_that_was_frozen_does_not_answer_a_task_that_has_another_holder(world: World, guarantee: str) -> None:
    """The task is detached a second time, so it has an entry, which names the other holder."""
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


def test_a_partition_does_not_move_before_the_commit_of_an_entry_is_confirmed(world: World) -> None:
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


def test_no_task_is_detached_while_a_member_does_not_know_detached_tasks(world: World) -> None:
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


def test_without_a_state_topic_a_revoked_partition_is_held_for_its_task(world: World) -> None:
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
