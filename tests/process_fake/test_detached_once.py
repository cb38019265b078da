"""Detached tasks under at-most-once: they never start again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process_fake.detaching import each_once, process, started
from tests.process_fake.stand_ins import Work
from worker.process.status_block import Command

if TYPE_CHECKING:
    from tests.process_fake.world import Process, World

PARTITIONS = 4


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_only_requests_that_must_not_overtake_a_detached_task_wait(world: World, ordering: str) -> None:
    """They wait for the holder's answer, although the committed offset is above its task."""
    first, second = (process(world, guarantee="at-most-once", ordering=ordering) for _ in range(2))
    world.run(20)
    began = world.clock()
    world.request("long", 0, key=b"a", work=Work(60))
    for n in range(40):
        world.request(f"short-{n}", n % 4, key=b"ab"[n // 4 % 2 : n // 4 % 2 + 1], work=Work(0.02))
    free = {"partition": 30, "key": 35, "unordered": 40}[ordering]
    world.until(lambda: len(world.answered()) == free)
    assert world.clock() - began < 12
    world.run(30)
    assert len(world.answered()) == free
    assert world.noted().detached
    assert (world.committed() or 0) > 0, "the position has not passed the start"
    world.until(lambda: len(world.answered()) == 41)
    each_once(world)
    assert len(first.starts) + len(second.starts) == 41
    world.until(lambda: all(world.committed(n) in {10, 11} for n in range(4)))


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
def test_a_task_whose_holder_has_died_is_lost(world: World, ordering: str) -> None:
    """It never starts again, and the requests that waited for it start."""
    holder, owner = detached_once(world, ordering)
    holder.kill()
    world.request("later", 0, work=Work(0.02))
    world.until(lambda: len(world.answered()) == 6)
    world.until(lambda: owner.counter("lost_total") and world.committed(0) == 3)
    world.run(10)
    assert (0, 0) not in world.answered()
    assert started(world, 0, 0, holder, owner) == 1
    assert owner.counter("lost_total") == 1
    each_once(world)


def test_the_next_owner_still_waits_for_the_holder(world: World) -> None:
    holder, owner = detached_once(world, "partition")
    owner.kill()
    third = process(world, guarantee="at-most-once", ordering="partition")
    world.until(lambda: 0 in third.owned)
    world.run(5)
    assert not started(world, 1, 0, holder, third)
    world.until(lambda: len(world.answered()) == 6)
    assert started(world, 0, 0, holder, owner, third) == 1
    assert third.counter("lost_total") == 0
    each_once(world)


def test_a_holder_that_was_frozen_still_answers(world: World) -> None:
    """Its task was counted as lost, but no process has started it again."""
    holder, owner = detached_once(world, "unordered")
    world.clock.freeze(holder._fibre)
    world.until(lambda: owner.counter("lost_total"))
    world.clock.thaw(holder._fibre)
    world.until(lambda: len(world.answered()) == 6)
    world.run(100)
    assert started(world, 0, 0, holder, owner) == 1
    each_once(world)


@pytest.mark.parametrize("command", [Command.DRAIN, Command.CANCEL])
def test_a_holder_that_leaves_answers_its_task(world: World, command: Command) -> None:
    holder, owner = detached_once(world, "partition")
    holder.order(command)
    world.until(lambda: holder.exit_code is not None)
    assert (0, 0) in world.answered()
    world.until(lambda: len(world.answered()) == 6)
    assert started(world, 0, 0, holder, owner) == 1
    assert owner.counter("lost_total") == 0


def detached_once(world: World, ordering: str) -> tuple[Process, Process]:
    """Return the process that runs the first task of partition 0, and the owner of that partition."""
    first, second = (process(world, guarantee="at-most-once", ordering=ordering) for _ in range(2))
    world.run(20)
    world.request("long", 0, work=Work(100))
    for number in (0, 1, 1, 2, 3):
        world.request("short", number, work=Work(0.02))
    world.until(lambda: len(world.answered()) == (4 if ordering == "partition" else 5))
    world.run(1)
    holder, owner = (first, second) if (0, 0, 1) in first.starts else (second, first)
    assert 0 in owner.owned
    assert world.noted().detached
    return holder, owner
