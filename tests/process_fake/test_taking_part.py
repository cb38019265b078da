"""When a process that has given way takes part again, and what an owner needs to take a task over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process_fake.detaching import each_once, process
from tests.process_fake.slotted import Slotted
from tests.process_fake.stand_ins import Work
from tests.process_fake.test_detached import detached
from tests.process_fake.world import REQUESTS, World
from worker.core.model import Partition
from worker.kafka.ports import KafkaFailure
from worker.process.status_block import Command
from worker.testing.group_calls import FakeGroupClient

PARTITIONS = 4


@pytest.mark.parametrize("draining", [0, 1])
def test_a_process_takes_the_partitions_of_a_process_that_drains(world: World, draining: int) -> None:
    pair = [process(world) for _ in range(2)]
    world.run(20)
    drains, stays = pair[draining], pair[1 - draining]
    world.request("long", stays.owned[0], work=Work(2_000.0))
    world.request("short", stays.owned[0], work=Work(0.02))
    world.until(lambda: len(world.answered()) == 1)
    world.run(10)
    assert len(drains.owned) == 4
    world.request("long", drains.owned[0])
    world.run(2)
    drains.order(Command.DRAIN)
    offset = world.request("waits", 1, work=Work(0.02))
    world.run(5)
    world.cancel(offset, 1)
    world.run(60)
    assert stays.owned == [0, 1, 2, 3]
    assert len(world.answered()) == 2, "the cancel request has not been answered"


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_process_with_a_free_extra_slot_takes_part(
    world: World, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.process_fake.world.StandInExecutor", Slotted)
    first, second = (process(world, guarantee=guarantee, extra_slots=1) for _ in range(2))
    world.run(20)
    here, there = first.owned[0], second.owned[0]
    world.request("long-a", here, work=Work(2_000.0))
    world.request("long-b", here, work=Work(30.0))
    world.run(7)
    world.request("short", here, work=Work(0.02))
    world.until(lambda: len(world.answered()) == 1, 20)
    assert first.counter("gave_way_total") == 1
    world.until(lambda: len(world.answered()) == 2, 40)
    world.run(10)
    assert [len(first.service.beside), first.service.running] == [1, None]
    for _ in range(2):
        world.request("long-c", there, work=Work(1_000.0))
    world.run(15)
    for number in range(20):
        world.request("short", number % 4)
    world.until(lambda: len(world.answered()) == 22, 30)
    assert second.service.beside


def test_a_process_whose_task_has_ended_takes_part_while_its_mark_cannot_be_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, owner = detached(world, "at-least-once", seconds=30.0)
    commit, end = FakeGroupClient.commit, world.clock() + 400

    def fail(client: FakeGroupClient, group: str, *args: Any) -> Any:
        failed = ".detached." in group and world.clock() < end
        return KafkaFailure("COORDINATOR_NOT_AVAILABLE", "scripted") if failed else commit(client, group, *args)

    monkeypatch.setattr(FakeGroupClient, "commit", fail)
    world.until(lambda: len(world.answered()) == 2)
    assert holder.service.running is None
    world.until(lambda: holder.owned, 10)
    world.request("long-2", 0, work=Work(1_000.0))
    for number in range(20):
        world.request("short", number % 4)
    world.until(lambda: len(world.answered()) == 22, 20)
    world.until(lambda: world.committed(0) == world.broker.topics[REQUESTS].ends[Partition(REQUESTS, 0)], 2_000)
    each_once(world)
    assert len(owner.owned) == 2


@pytest.mark.parametrize("seconds", [2.8, 4.0, 8.0])
@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_a_task_that_ends_before_its_partition_moves_leaves_no_entry(
    world: World, guarantee: str, seconds: float
) -> None:
    first, second = (process(world, guarantee=guarantee, ordering="partition") for _ in range(2))
    world.run(20)
    holder, other = (first, second) if 0 in first.owned else (second, first)
    world.request("long", 0, work=Work(seconds))
    world.run(2)
    world.broker.fail_commits("_TIMED_OUT", 1, applied=True)
    world.broker.fail_commits("COORDINATOR_NOT_AVAILABLE", 10_000)
    world.move(0, other)
    world.until(lambda: 0 in other.owned, 60)
    world.broker.commit_faults.clear()
    world.run(5)
    assert holder.exit_code is None
    world.request("behind", 0, work=Work(0.02))
    world.until(lambda: (0, 1) in world.answered(), 120)
    world.until(lambda: world.committed(0) == 2, 60)


@pytest.mark.parametrize("delay", [0.001, 0.03, 0.06, 0.1])
def test_a_task_is_taken_over_under_load(world: World, delay: float) -> None:
    holder, owner = detached(world, "at-least-once")
    world.broker.commit_delay = delay
    for number in range(4_000):
        world.request("load", number % 4, work=Work(0.05))
    holder.kill()
    world.until(lambda: (0, 0, 2) in owner.starts, 45 + 30)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once", "at-most-once"])
def test_an_owner_without_a_state_topic_takes_over(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee)
    holder.kill()
    owner.kill()
    third = process(world, guarantee=guarantee, state_topic="")
    if guarantee == "at-most-once":
        world.until(lambda: third.counter("lost_total"), 300)
        return
    world.until(lambda: (0, 0, 2) in third.starts, 300)
    world.until(lambda: len(world.answered()) == 2)
    each_once(world)
