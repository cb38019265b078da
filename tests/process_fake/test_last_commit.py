"""The last commit of a partition that moves, and the first commit of its next owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.detaching import process
from tests.process_fake.stand_ins import Work

if TYPE_CHECKING:
    from tests.process_fake.world import Process, World

PARTITIONS = 4


def move_under_load(world: World, phase: float, tasks: int, seconds: float, **options: Any) -> Process:
    """Let a second process join under load. Its partitions come soon, without suspects. Return it."""
    process(world, long_after=60.0, **options)
    world.run(5)
    for number in range(2_000):
        world.request("quick", number % 4, work=Work(0.002))
    for number in range(tasks):
        world.request("load", number % 4, work=Work(seconds))
    world.until(lambda: world.answer_count() > 2_050)
    world.run(phase)
    since = world.clock()
    second = process(world, long_after=60.0, **options)
    world.until(lambda: len(second.owned) == 2, 60)
    assert world.clock() - since < 3
    assert [one.starts.suspects for one in second.loop.assignment] == [None, None]
    return second


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("phase", [0.0, 0.6])
@pytest.mark.parametrize("ordering", ["partition", "unordered"])
def test_a_revoked_partition_is_committed_while_others_are_under_load(
    world: World, guarantee: str, phase: float, ordering: str
) -> None:
    second = move_under_load(world, phase, 1_200, 0.08, guarantee=guarantee, ordering=ordering)
    world.run(5)
    assert not second.counter("lost_total")


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once", "exactly-once"])
@pytest.mark.parametrize("phase", [0.0, 0.061])
def test_a_partition_moves_soon_while_tasks_become_longer(world: World, guarantee: str, phase: float) -> None:
    move_under_load(world, phase, 1_600, 0.04, guarantee=guarantee)
