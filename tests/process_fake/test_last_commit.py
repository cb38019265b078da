"""The last commit of a partition that moves, and its first one at the next owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process_fake.detaching import process
from tests.process_fake.stand_ins import Work

if TYPE_CHECKING:
    from tests.process_fake.world import World

PARTITIONS = 4


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("phase", [0.0, 0.6])
@pytest.mark.parametrize("ordering", ["partition", "unordered"])
def test_a_revoked_partition_is_committed_while_others_are_under_load(
    world: World, guarantee: str, phase: float, ordering: str
) -> None:
    process(world, guarantee=guarantee, long_after=60.0, ordering=ordering)
    world.run(5)
    for number in range(2_000):
        world.request("quick", number % 4, work=Work(0.002))
    for number in range(1_200):
        world.request("load", number % 4, work=Work(0.08))
    world.until(lambda: len(world.answered()) > 2_050)
    world.run(phase)
    since = world.clock()
    second = process(world, guarantee=guarantee, long_after=60.0, ordering=ordering)
    world.until(lambda: len(second.owned) == 2, 60)
    took = world.clock() - since
    suspects = [one.starts.suspects for one in second.loop.assignment]
    world.run(5)
    assert not second.counter("lost_total")
    assert took < 3
    assert suspects == [None, None]


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once", "exactly-once"])
@pytest.mark.parametrize("phase", [0.0, 0.061])
def test_a_partition_moves_soon_while_tasks_become_longer(world: World, guarantee: str, phase: float) -> None:
    process(world, guarantee=guarantee, long_after=60.0)
    world.run(5)
    for number in range(2_000):
        world.request("quick", number % 4, work=Work(0.002))
    for number in range(1_600):
        world.request("load", number % 4, work=Work(0.04))
    world.until(lambda: len(world.answered()) > 2_050)
    world.run(phase)
    since = world.clock()
    second = process(world, guarantee=guarantee, long_after=60.0)
    world.until(lambda: len(second.owned) == 2, 60)
    took = world.clock() - since
    suspects = [one.starts.suspects for one in second.loop.assignment]
    assert took < 3
    assert suspects == [None, None]
